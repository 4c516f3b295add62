//===- Printing.h - Printing never waits for a reader ---------------------===//
// A terminal that was stopped (Ctrl-S), a pager or a slow pipe must not hold up a rank for which all others wait.
// Background threads write standard output and standard error. The text that waits to be written has a limited size;
// further text is dropped.
//===----------------------------------------------------------------------===//
#ifndef PCRT_BASE_PRINTING_H
#define PCRT_BASE_PRINTING_H

namespace pcrt {

/// Makes printing to stdout and stderr return at once from now on. Lines that are dropped because the reader is too
/// slow are counted in the output itself. A failed write is reported once, as a warning, and the next line is tried
/// again. A closed pipe raises SIGPIPE as usual. A process that is forked later must print with dprintf until it calls
/// exec.
void printInBackground();

/// Waits until everything is written, or until two seconds pass without progress. Returns false if writing to standard
/// output has failed. exit() calls it; call it before _exit.
bool finishPrinting();

/// Whether much text waits to be written to standard error. While this is so, a process that relays the output of
/// others stops reading from them.
bool printingLagsBehind();

} // namespace pcrt

#endif // PCRT_BASE_PRINTING_H
