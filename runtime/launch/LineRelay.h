//===- LineRelay.h - A rank's output, line by line, with its name ---------===//
// Keeps the lines of several ranks from mixing on one stderr.
//===----------------------------------------------------------------------===//
#ifndef PCRT_LAUNCH_LINERELAY_H
#define PCRT_LAUNCH_LINERELAY_H

#include <string>

namespace pcrt {

/// Reads a pipe to which a rank writes, and writes complete lines to stderr with a prefix. It owns both ends of the
/// pipe. The launcher's thread uses it.
class LineRelay {
public:
  /// Opens the pipe; false with errno set if there are no descriptors left.
  bool open(const std::string &prefix);
  ~LineRelay();

  int readEnd() const { return ends[0]; } ///< -1 after it was closed.
  int writeEnd() const { return ends[1]; }
  void closeWriteEnd();

  /// Forwards the available lines without waiting, at most a pipe's worth; closes the pipe at its end.
  void forward();
  /// Forwards the rest, including a last line without a line end.
  void finish();

private:
  /// Forwards what one read returns; false if there is nothing now.
  bool forwardSome();
  void write(size_t length);

  std::string prefix, pending;
  int ends[2] = {-1, -1};
};

} // namespace pcrt

#endif // PCRT_LAUNCH_LINERELAY_H
