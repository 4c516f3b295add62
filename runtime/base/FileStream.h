//===- FileStream.h - Stretches of a file, past the page cache ------------===//
// Checkpoints are large and are not read again soon, so they should not displace other files from the page cache.
//===----------------------------------------------------------------------===//
#ifndef PCRT_BASE_FILESTREAM_H
#define PCRT_BASE_FILESTREAM_H

#include "base/TensorSum.h"

namespace pcrt {

/// Writes elements to a file as f32, or codes as they are. Stretches that are neighbours in the file are gathered
/// first. Whole pages are written past the page cache, which is three times as fast and leaves the cache's contents
/// alone. The rest is written through the cache. The stream borrows both descriptors. One thread uses it at a time.
/// After a failed write the contents of the file are undefined.
class FileStream {
public:
  /// `direct` is the file `fd`, opened once more with O_DIRECT, or -1 if that is impossible.
  FileStream(int fd, int direct);
  ~FileStream();
  FileStream(const FileStream &) = delete;
  FileStream &operator=(const FileStream &) = delete;

  /// Appends `count` elements of type `dtype`, which belong at `offset` in the file. If `sum` is not null, adds the
  /// elements to it as elements `first`, `first` + 1 and so on. Returns false, with errno, if these or earlier elements
  /// could not be written.
  bool write(int64_t offset, const void *elements, int32_t dtype, int64_t count, TensorSum *sum = nullptr,
             int64_t first = 0);
  /// Writes the bytes that are still buffered. Returns false, with errno, on failure.
  bool flush();

private:
  bool writeUpTo(int64_t end);
  char *at(int64_t offset);

  int fd, direct;
  char *buffer;
  int64_t begin = 0, have = 0; ///< The offset and the size of the gathered bytes.
};

/// Writes all bytes, or returns false with errno set.
bool writeAll(int fd, const void *data, int64_t bytes, int64_t offset);

} // namespace pcrt

#endif // PCRT_BASE_FILESTREAM_H
