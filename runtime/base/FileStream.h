//===- FileStream.h - stretches of a file, past the page cache ------------===//
#ifndef PCRT_BASE_FILESTREAM_H
#define PCRT_BASE_FILESTREAM_H

#include "base/TensorSum.h"

namespace pcrt {

/// Writes f32 elements to a file: gathers stretches that are neighbours in it, and writes whole pages past the page
/// cache (three times as fast, and what others have cached stays), the rest through it.
class FileStream {
public:
  /// `direct`: the file `fd`, opened once more with O_DIRECT; -1 where that cannot be.
  FileStream(int fd, int direct);
  ~FileStream();
  FileStream(const FileStream &) = delete;
  FileStream &operator=(const FileStream &) = delete;

  /// Appends `count` elements of type `dtype` whose place in the file is `offset`, and adds them to `sum` (if there is
  /// one) as those from number `first` on. False, with errno: these or earlier ones could not be written.
  bool write(int64_t offset, const void *elements, int32_t dtype, int64_t count, TensorSum *sum = nullptr,
             int64_t first = 0);
  bool flush();

private:
  bool writeUpTo(int64_t end);
  char *at(int64_t offset);

  int fd, direct;
  char *buffer;
  int64_t begin = 0, have = 0; ///< What of the file is gathered.
};

/// Writes all bytes, or returns false with errno set.
bool writeAll(int fd, const void *data, int64_t bytes, int64_t offset);

} // namespace pcrt

#endif // PCRT_BASE_FILESTREAM_H
