//===- Printing.h - printing never waits for a reader ---------------------===//
//
// A terminal that was stopped (Ctrl-S), a pager or a slow pipe must not hold up
// a rank for which all others wait. Threads write standard output and standard
// error; what they are behind with is bounded, and more than that is dropped.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_BASE_PRINTING_H
#define PCRT_BASE_PRINTING_H

namespace pcrt {

/// From now on stdout and stderr return at once. Lines that are dropped because nobody reads are counted in the output
/// itself. A write that fails is a warning, once, and the next line is tried again. SIGPIPE comes as it does otherwise.
/// A process that is forked afterwards prints with dprintf until it runs another program.
void printInBackground();

/// Waits until everything is written that somebody reads, as long as that goes on: two seconds without progress are
/// enough. False: writing to standard output has failed. Called at exit(); call it before _exit.
bool finishPrinting();

/// Whether much waits to be written to standard error: who passes on what others print leaves it where it is.
bool printingIsBehind();

} // namespace pcrt

#endif // PCRT_BASE_PRINTING_H
