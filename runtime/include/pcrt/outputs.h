//===- outputs.h - Files that a command writes ----------------------------===//
// The compiler's tools and compiled programs write files that a user names in the same way. They first compare such a
// file with the files that they read, and replace it only when its new content is complete.
//===----------------------------------------------------------------------===//
#ifndef PCRT_OUTPUTS_H
#define PCRT_OUTPUTS_H

#include <string>
#include <vector>

namespace pcrt {

/// A file that a command reads or writes: the flag, or other words, that name it, and its path. "-" is standard input
/// or output. An empty path means that there is no file.
struct NamedPath {
  std::string flag, path;
};

/// The message about why a command must not begin: an output is also an input, or two outputs are the same file; empty
/// if nothing is wrong. It compares devices and inodes, so links and other spellings of a path do not matter; files
/// that do not exist yet are compared by their directory and name. Devices, FIFOs and sockets never clash. Call it
/// before anything is opened for writing.
std::string clashOfOutputs(const std::vector<NamedPath> &inputs, const std::vector<NamedPath> &outputs);

/// The files of a Hugging Face directory or a checkpoint that a command may read, each with `flag`: weights,
/// config.json, tokenizers. Other files there, such as a report of an earlier compile, are not included. A path that is
/// not a directory stands for itself.
std::vector<NamedPath> filesOfModel(const std::string &flag, const std::string &path);

/// A file that replaces its target only when it is complete. The content is written to a temporary file next to the
/// target, which commit() renames; a symbolic link stays and its target is replaced. A target that cannot be replaced
/// by a rename (a device, a FIFO, a mount point, a directory without write permission) gets a copy of the complete
/// content.
class OutputFile {
public:
  OutputFile() = default;
  ~OutputFile() { discard(); }
  OutputFile(const OutputFile &) = delete;
  OutputFile &operator=(const OutputFile &) = delete;

  /// Creates the temporary file. False, with errno: the target cannot be written. The target does not change.
  bool open(const std::string &path);
  /// The temporary file, to which the content is written: an open descriptor, and its path.
  int descriptor() const { return fd; }
  const std::string &temporary() const { return work; }
  /// Replaces the target by the content, with the mode of the file that it replaces. If a program rewrote temporary()
  /// under its path, that file counts. False, with errno: the target has not changed, unless it had to be written by
  /// copying.
  bool commit();
  /// Removes the temporary file; does nothing after commit().
  void discard();

private:
  bool copyToTarget();

  std::string target, work;
  bool byCopy = false; ///< The target cannot be renamed over.
  int fd = -1;
};

} // namespace pcrt

#endif // PCRT_OUTPUTS_H
