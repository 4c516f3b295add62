//===- SafetensorsWriter.cpp - Writing safetensors files from all ranks ---===//
// The header is built from the sorted names, padded so that data begin at a multiple of 64 bytes. create() allocates
// all of the space first: a full disk is an error before anything is written.
//===----------------------------------------------------------------------===//
#include "base/SafetensorsWriter.h"
#include "base/Failure.h"
#include "base/Types.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

using namespace pcrt;

void SafetensorsWriter::add(const std::string &name, const Dims &shape, int32_t dtype) {
  cachedHeader.clear();
  auto [at, isNew] = tensors.emplace(name, shape);
  if (!isNew && at->second != shape)
    fail(PCRT_INTERNAL, "tensor " + name + " has two shapes: " + describe(shape) + " and " + describe(at->second));
  if (!isNew && (dtype == PCRT_I8) != (codes.count(name) > 0))
    fail(PCRT_INTERNAL, "tensor " + name + " has two dtypes");
  if (dtype == PCRT_I8)
    codes.insert(name);
}

void SafetensorsWriter::addMetadata(const std::string &key, const std::string &value) {
  cachedHeader.clear();
  metadata[key] = value;
}

/// The header is the length, the JSON text, and spaces that align the data to 64 bytes.
const std::string &SafetensorsWriter::header() const {
  if (!cachedHeader.empty())
    return cachedHeader;
  Json json = Json::object();
  if (!metadata.empty())
    json["__metadata__"] = metadata;
  int64_t offset = 0;
  for (auto &[name, shape] : tensors) {
    int64_t end = offset + widthOf(name) * product(shape);
    json[name] = {{"dtype", dtypeOf(name)}, {"shape", shape}, {"data_offsets", {offset, end}}};
    places[name] = offset;
    offset = end;
  }
  dataBytes = offset;
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
  int64_t head = int64_t(header().size()); // makes dataBytes
  return head + dataBytes;
}

SafetensorsWriter::SafetensorsWriter(std::string path) : path(std::move(path)) {}
SafetensorsWriter::~SafetensorsWriter() { close(); }

FileStream &SafetensorsWriter::stream(size_t number) {
  while (streams.size() <= number)
    streams.push_back(std::make_unique<FileStream>(fd, direct));
  return *streams[number];
}

void SafetensorsWriter::openStreams() {
  header(); // computed before threads ask for it
  direct = ::open(path.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC);
  stream(0);
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
  openStreams();
}

void SafetensorsWriter::open() {
  fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0)
    fail(PCRT_RESOURCE, withErrno("cannot write " + path));
  openStreams();
}

pcrt_status SafetensorsWriter::write(int64_t place, const Dims &valid, const Block &block, const Box &box,
                                     int32_t dtype, const void *data) const {
  FileStream &stream = *streams[0];
  bool good = true;
  forEachPiece(valid, block, box, [&](int64_t blockOffset, int64_t tensorOffset, int64_t count) {
    good = good && stream.write(place + 4 * tensorOffset,
                                static_cast<const char *>(data) + blockOffset * elementBytes(dtype), dtype, count);
  });
  return stream.flush() && good ? PCRT_OK : PCRT_RESOURCE;
}

void SafetensorsWriter::sync() {
  if (fsync(fd) != 0)
    fail(PCRT_RESOURCE, withErrno("cannot write " + path));
}

void SafetensorsWriter::close() {
  streams.clear();
  for (int *file : {&fd, &direct})
    if (*file >= 0)
      ::close(std::exchange(*file, -1));
}
