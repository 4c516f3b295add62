//===- LineRelay.h - A rank's output, line by line, with its name ---------===//
#ifndef PCRT_LAUNCH_LINERELAY_H
#define PCRT_LAUNCH_LINERELAY_H

#include <string>

namespace pcrt {

/// Reads a pipe that a rank writes to and passes whole lines on to stderr with a prefix, so that the lines of several
/// ranks do not mix.
class LineRelay {
public:
  /// Opens the pipe; false with errno set if there are no descriptors left.
  bool open(const std::string &prefix);
  ~LineRelay();

  int readEnd() const { return ends[0]; } ///< -1 once it is closed.
  int writeEnd() const { return ends[1]; }
  void closeWriteEnd();

  /// Passes on what is there without waiting, a pipe's worth at most; closes the pipe at its end.
  void forward();
  /// Passes on what is left, a last line without an end included.
  void finish();

private:
  void write(size_t length);

  std::string prefix, pending;
  int ends[2] = {-1, -1};
};

} // namespace pcrt

#endif // PCRT_LAUNCH_LINERELAY_H
