//===- InputFile.h - A file to read ---------------------------------------===//
// Files may change while a run reads them, so they are read and never mapped. If a file has become shorter or a disk
// fails, the result is then an error that names the file, and not a signal or zeros.
//===----------------------------------------------------------------------===//
#ifndef PCRT_BASE_INPUTFILE_H
#define PCRT_BASE_INPUTFILE_H

#include <cstdint>
#include <string>

namespace pcrt {

/// An open regular file; it owns the descriptor. It can be moved, but not copied. Any number of threads may read it.
class InputFile {
public:
  InputFile() = default;
  /// Opens the file. Throws PCRT_BAD_DATA, naming the file, if it cannot be read or is not a regular file. A pipe is
  /// refused because it has no length, and reading it might block.
  explicit InputFile(const std::string &path);
  InputFile(InputFile &&other) noexcept { swap(other); }
  InputFile &operator=(InputFile &&other) noexcept {
    swap(other);
    return *this;
  }
  ~InputFile();

  /// The size of the file, in bytes, when it was opened.
  int64_t size() const { return length; }
  const std::string &path() const { return name; }

  /// Reads bytes [offset, offset + count). Throws PCRT_BAD_DATA, naming the file, if the bytes cannot be read or the
  /// file has become shorter.
  void read(int64_t offset, int64_t count, void *to) const;
  std::string read(int64_t offset, int64_t count) const;
  /// The whole file.
  std::string text() const { return read(0, length); }

private:
  void swap(InputFile &other) noexcept;

  std::string name;
  int fd = -1;
  int64_t length = 0;
};

} // namespace pcrt

#endif // PCRT_BASE_INPUTFILE_H
