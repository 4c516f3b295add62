//===- SafetensorsWriter.cpp - writing safetensors files from all ranks ---===//
#include "base/SafetensorsWriter.h"
#include "base/Failure.h"
#include "base/Types.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

using namespace pcrt;

SafetensorsWriter::~SafetensorsWriter() { close(); }

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
}

void SafetensorsWriter::open() {
  fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0)
    fail(PCRT_RESOURCE, withErrno("cannot write " + path));
}

pcrt_status SafetensorsWriter::write(int64_t place, const Dims &valid, const Block &block, const Box &box,
                                     int32_t dtype, const void *data, TensorSum *sum) const {
  bool good = true;
  auto writePiece = [&](const float *values, int64_t first, int64_t size) {
    if (sum)
      sum->add(first, values, size);
    good = good && writeAll(fd, values, 4 * size, place + 4 * first);
  };
  // Pieces that are neighbours in the file, as heads of a packed parameter are, cost one call of the system together.
  constexpr int64_t most = 1024;
  float gathered[most];
  int64_t begin = 0, have = 0;
  auto flush = [&] {
    if (have)
      writePiece(gathered, begin, have);
    have = 0;
  };
  forEachPiece(valid, block, box, [&](int64_t blockOffset, int64_t tensorOffset, int64_t count) {
    if (!good)
      return;
    if (dtype == PCRT_F32 && count >= most) {
      flush();
      return writePiece(static_cast<const float *>(data) + blockOffset, tensorOffset, count);
    }
    for (int64_t done = 0; done < count;) {
      if (have == most || begin + have != tensorOffset + done)
        flush();
      if (!have)
        begin = tensorOffset + done;
      for (; done < count && have < most; ++done, ++have)
        gathered[have] = dtype == PCRT_F32 ? static_cast<const float *>(data)[blockOffset + done]
                                           : bf16ToFloat(static_cast<const uint16_t *>(data)[blockOffset + done]);
    }
  });
  flush();
  return good ? PCRT_OK : PCRT_RESOURCE;
}

void SafetensorsWriter::sync() {
  if (fsync(fd) != 0)
    fail(PCRT_RESOURCE, withErrno("cannot write " + path));
}

void SafetensorsWriter::close() {
  if (fd >= 0)
    ::close(fd);
  fd = -1;
}
