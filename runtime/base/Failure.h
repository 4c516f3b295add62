//===- Failure.h - The reason why a run ends early ------------------------===//
// A Failure is thrown while a run is set up and between its steps, and caught once in Main. It never crosses the C ABI:
// the functions of pcrt.h return a status and leave the message in the context.
//===----------------------------------------------------------------------===//
#ifndef PCRT_BASE_FAILURE_H
#define PCRT_BASE_FAILURE_H

#include "pcrt/pcrt.h"

#include <string>

namespace pcrt {

/// The reason for the end of a run: the exit status of the process, and one line for the user.
struct Failure {
  pcrt_status status;
  std::string message;
};

[[noreturn]] inline void fail(pcrt_status status, std::string message) { throw Failure{status, std::move(message)}; }

/// Returns `text` on one line, safe for a terminal and of bounded length. Messages quote names from files, which may
/// hold anything. Control characters, and bytes that are not UTF-8, become "\x1b".
std::string printable(const std::string &text);

/// Returns the number of bytes of the UTF-8 character that begins at byte `at` of `text`. Returns 0 if none begins
/// there, or if it is a control character.
size_t plainCharacter(const std::string &text, size_t at);

/// Returns `what` followed by the text of errno, such as "file: No such file or directory".
std::string withErrno(const std::string &what);

} // namespace pcrt

#endif // PCRT_BASE_FAILURE_H
