//===- SafetensorsWriter.cpp - writing safetensors files from all ranks ---===//
#include "base/SafetensorsWriter.h"
#include "base/Failure.h"
#include "base/Types.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

using namespace pcrt;

void SafetensorsWriter::add(const std::string &name, const Dims &shape) {
  cachedHeader.clear();
  auto [at, isNew] = tensors.emplace(name, shape);
  if (!isNew && at->second != shape)
    fail(PCRT_INTERNAL, "tensor " + name + " has two shapes: " + describe(shape) + " and " + describe(at->second));
}

void SafetensorsWriter::addMetadata(const std::string &key, const std::string &value) {
  cachedHeader.clear();
  metadata[key] = value;
}

/// Length, JSON, and spaces that align the data to 64 bytes.
const std::string &SafetensorsWriter::header() const {
  if (!cachedHeader.empty())
    return cachedHeader;
  Json json = Json::object();
  if (!metadata.empty())
    json["__metadata__"] = metadata;
  int64_t offset = 0;
  for (auto &[name, shape] : tensors) {
    int64_t end = offset + 4 * product(shape);
    json[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {offset, end}}};
    places[name] = offset;
    offset = end;
  }
  std::string text = json.dump();
  text.append(-(8 + text.size()) & 63, ' ');
  std::string &length = cachedHeader;
  for (int byte = 0; byte < 8; ++byte)
    length += char(uint64_t(text.size()) >> (8 * byte));
  return cachedHeader += text;
}

int64_t SafetensorsWriter::placeOf(const std::string &name) const {
  int64_t data = int64_t(header().size());
  auto found = places.find(name);
  if (found == places.end())
    fail(PCRT_INTERNAL, "tensor " + name + " was not added to " + path);
  return data + found->second;
}

int64_t SafetensorsWriter::bytes() const {
  int64_t bytes = int64_t(header().size());
  for (auto &[name, shape] : tensors)
    bytes += 4 * product(shape);
  return bytes;
}

/// Writes all bytes, or returns false with errno set.
static bool writeAll(int fd, const void *data, int64_t bytes, int64_t offset) {
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

/// Gathers stretches that are neighbours in the file.
class SafetensorsWriter::Pages {
public:
  /// `direct`: the same file, opened with O_DIRECT; -1 where that cannot be.
  Pages(int fd, int direct)
      : fd(fd), direct(direct), buffer(static_cast<char *>(aligned_alloc(page, size_t(most + page)))) {
    if (!buffer)
      throw std::bad_alloc();
  }
  ~Pages() {
    free(buffer);
    if (direct >= 0)
      ::close(direct);
  }
  Pages(const Pages &) = delete;
  Pages &operator=(const Pages &) = delete;

  /// False, with errno: this or an earlier stretch could not be written.
  bool write(const void *data, int64_t bytes, int64_t offset) {
    bool good = begin + have == offset || flush();
    for (auto *from = static_cast<const char *>(data); good && bytes > 0;) {
      if (!have)
        begin = offset;
      int64_t now = std::min(bytes, most - have);
      memcpy(at(begin) + have, from, size_t(now));
      have += now, from += now, offset += now, bytes -= now;
      good = have < most || flush();
    }
    return good;
  }

  bool flush() {
    int64_t end = begin + std::exchange(have, 0), first = (begin + page - 1) / page * page, last = end / page * page;
    if (direct < 0 || last - first < fewest)
      return writeAll(fd, at(begin), end - begin, begin);
    bool good =
        writeAll(fd, at(begin), first - begin, begin) && writeAll(fd, at(begin) + last - begin, end - last, last);
    if (good && writeAll(direct, at(begin) + first - begin, last - first, first))
      return true;
    // Some file systems open such files, but do not write them.
    return good && errno == EINVAL && writeAll(fd, at(begin) + first - begin, last - first, first);
  }

private:
  static constexpr int64_t page = 4096, most = 4 << 20, fewest = 64 << 10;

  /// Where the buffer has the byte at `begin`: at the same place of a page as in the file.
  char *at(int64_t offset) { return buffer + offset % page; }

  int fd, direct;
  char *buffer;
  int64_t begin = 0, have = 0;
};

SafetensorsWriter::SafetensorsWriter(std::string path) : path(std::move(path)) {}
SafetensorsWriter::~SafetensorsWriter() { close(); }

void SafetensorsWriter::openPages() {
  pages = std::make_unique<Pages>(fd, ::open(path.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC));
}

void SafetensorsWriter::create() {
  const std::string &head = header();
  int64_t bytes = this->bytes();
  fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0)
    fail(PCRT_RESOURCE, withErrno("cannot write " + path));
  // Allocates all of the space, so that a full disk is an error before anything is written.
  int error = posix_fallocate(fd, 0, bytes);
  if (error == EOPNOTSUPP || error == EINVAL)
    error = ftruncate(fd, bytes) ? errno : 0;
  if (!error && !writeAll(fd, head.data(), int64_t(head.size()), 0))
    error = errno;
  if (error) {
    errno = error;
    fail(PCRT_RESOURCE, withErrno("cannot write " + std::to_string(bytes) + " bytes to " + path));
  }
  openPages();
}

void SafetensorsWriter::open() {
  fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0)
    fail(PCRT_RESOURCE, withErrno("cannot write " + path));
  openPages();
}

pcrt_status SafetensorsWriter::write(int64_t place, const Dims &valid, const Block &block, const Box &box,
                                     int32_t dtype, const void *data, TensorSum *sum) const {
  bool good = true;
  auto writePiece = [&](const float *values, int64_t first, int64_t size) {
    if (sum)
      sum->add(first, values, size);
    good = good && pages->write(values, 4 * size, place + 4 * first);
  };
  forEachPiece(valid, block, box, [&](int64_t blockOffset, int64_t tensorOffset, int64_t count) {
    if (dtype == PCRT_F32)
      return writePiece(static_cast<const float *>(data) + blockOffset, tensorOffset, count);
    float wide[1024];
    for (int64_t done = 0, now; done < count; done += now) {
      now = std::min<int64_t>(count - done, std::size(wide));
      for (int64_t i = 0; i < now; ++i)
        wide[i] = bf16ToFloat(static_cast<const uint16_t *>(data)[blockOffset + done + i]);
      writePiece(wide, tensorOffset + done, now);
    }
  });
  return pages->flush() && good ? PCRT_OK : PCRT_RESOURCE;
}

void SafetensorsWriter::sync() {
  if (fsync(fd) != 0)
    fail(PCRT_RESOURCE, withErrno("cannot write " + path));
}

void SafetensorsWriter::close() {
  pages.reset();
  if (fd >= 0)
    ::close(fd);
  fd = -1;
}
