//===- FileStream.cpp - Stretches of a file, past the page cache ----------===//
// The buffer holds one stretch of the file, [begin, begin + have), at the same place of a page as in the file. O_DIRECT
// asks for aligned memory, offsets and sizes, so only the whole pages in the middle go past the cache.
//===----------------------------------------------------------------------===//
#include "base/FileStream.h"
#include "base/Types.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

using namespace pcrt;

/// Limits in bytes: `most` is the size of the buffer, `fewest` is the smallest write past the page cache, and `cached`
/// is converted and summed at a time, so that it is still in the processor's cache for the sum.
static constexpr int64_t page = 4096, hugePage = 2 << 20, most = 4 << 20, fewest = 64 << 10, cached = 128 << 10;

bool pcrt::writeAll(int fd, const void *data, int64_t bytes, int64_t offset) {
  auto *at = static_cast<const char *>(data);
  while (bytes > 0) {
    ssize_t written = pwrite(fd, at, bytes, offset);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return false;
    at += written;
    offset += written;
    bytes -= written;
  }
  return true;
}

FileStream::FileStream(int fd, int direct)
    : fd(fd), direct(direct), buffer(static_cast<char *>(aligned_alloc(hugePage, size_t(most + hugePage)))) {
  if (!buffer)
    throw std::bad_alloc();
  // A write past the page cache pins each page, so large pages make it faster.
  madvise(buffer, size_t(most), MADV_HUGEPAGE);
}

FileStream::~FileStream() { free(buffer); }

/// The place in the buffer of byte `offset` of the file.
char *FileStream::at(int64_t offset) { return buffer + begin % page + (offset - begin); }

/// Codes are summed as the numbers that their bytes are.
static void addCodes(TensorSum &sum, int64_t first, const char *codes, int64_t count) {
  float numbers[1024];
  for (int64_t done = 0; done < count;) {
    int64_t now = std::min<int64_t>(count - done, std::ssize(numbers));
    for (int64_t i = 0; i < now; ++i)
      numbers[i] = static_cast<signed char>(codes[done + i]);
    sum.add(first + done, numbers, now);
    done += now;
  }
}

bool FileStream::write(int64_t offset, const void *elements, int32_t dtype, int64_t count, TensorSum *sum,
                       int64_t first) {
  if (begin + have != offset && !flush())
    return false;
  auto *from = static_cast<const char *>(elements);
  const int64_t width = dtype == PCRT_I8 ? 1 : 4;
  while (count > 0) {
    if (!have)
      begin = offset;
    int64_t now = std::min({count, (most - have) / width, cached / 4});
    auto *to = reinterpret_cast<float *>(at(offset));
    if (width == 1) {
      memcpy(to, from, size_t(now));
      if (sum)
        addCodes(*sum, first, from, now);
    } else if (dtype == PCRT_F32 && sum) {
      sum->add(first, from, now, to);
    } else if (dtype == PCRT_F32) {
      memcpy(to, from, size_t(4 * now));
    } else {
      toFloats(reinterpret_cast<const uint16_t *>(from), to, now);
      if (sum)
        sum->add(first, to, now);
    }
    have += width * now, offset += width * now, first += now, count -= now;
    from += now * elementBytes(dtype);
    if (most - have < width && !writeUpTo(offset / page * page))
      return false;
  }
  return true;
}

/// Writes the buffered bytes up to `end`, and keeps the rest.
bool FileStream::writeUpTo(int64_t end) {
  int64_t first = (begin + page - 1) / page * page, last = end / page * page;
  bool good = true;
  if (direct < 0 || last - first < fewest) {
    good = writeAll(fd, at(begin), end - begin, begin);
  } else {
    good = writeAll(fd, at(begin), first - begin, begin) && writeAll(fd, at(last), end - last, last);
    // Some file systems open files with O_DIRECT, but cannot write them.
    good = good && (writeAll(direct, at(first), last - first, first) ||
                    (errno == EINVAL && writeAll(fd, at(first), last - first, first)));
  }
  int64_t rest = begin + have - end;
  memmove(buffer + end % page, at(end), size_t(rest));
  begin = end, have = rest;
  return good;
}

bool FileStream::flush() { return writeUpTo(begin + have); }
