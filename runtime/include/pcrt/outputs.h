//===- outputs.h - Files that a command writes ----------------------------===//
// What the compiler's tools and compiled programs do alike before and while they write a file that a user names:
// compare it with the files they read, and replace it only when its new content is complete.
//===----------------------------------------------------------------------===//
#ifndef PCRT_OUTPUTS_H
#define PCRT_OUTPUTS_H

#include <string>
#include <vector>

namespace pcrt {

/// A file that a command reads or writes: the flag, or other words, that name it, and its path. "-" is standard input
/// or output. An empty path is none.
struct NamedPath {
  std::string flag, path;
};

/// Why a command must not begin: an output is also an input, or two outputs are the same file. Compares devices and
/// inodes, so links and other spellings of a path do not matter; files that do not exist yet are compared by their
/// directory and name. Devices, FIFOs and sockets never clash. Empty: nothing is wrong. Call it before anything is
/// opened for writing.
std::string clashOfOutputs(const std::vector<NamedPath> &inputs, const std::vector<NamedPath> &outputs);

/// The files of a Hugging Face directory or a checkpoint that a command may read, each with `flag`: weights,
/// config.json, tokenizers. Other files there, such as a report of an earlier compile, are not among them. A path that
/// is no directory stands for itself.
std::vector<NamedPath> filesOfModel(const std::string &flag, const std::string &path);

/// A file that replaces its target only when it is complete. The content is written to a temporary file beside the
/// target, which commit() renames; a symbolic link stays and its target is replaced. What cannot be replaced by a
/// rename (a device, a FIFO, a mount point, a directory without write permission) gets a copy of the complete content.
class OutputFile {
public:
  OutputFile() = default;
  ~OutputFile() { discard(); }
  OutputFile(const OutputFile &) = delete;
  OutputFile &operator=(const OutputFile &) = delete;

  /// Makes the temporary file. False, with errno: the target cannot be written. The target stays as it is.
  bool open(const std::string &path);
  /// Where the content is written to: an open descriptor, and its path.
  int descriptor() const { return fd; }
  const std::string &temporary() const { return work; }
  /// Puts the content in the place of the target, with the mode of the file that it replaces. A program that rewrote
  /// temporary() under its path is taken as it is there. False, with errno: the target is as it was, unless it had to
  /// be written by copying.
  bool commit();
  /// Removes the temporary file; nothing happens after commit().
  void discard();

private:
  bool copyToTarget();

  std::string target, work;
  bool byCopy = false; ///< The target cannot be renamed over.
  int fd = -1;
};

} // namespace pcrt

#endif // PCRT_OUTPUTS_H
