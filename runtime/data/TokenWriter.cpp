//===- TokenWriter.cpp - Writes files of tokens ---------------------------===//
// The header contains the number of tokens, so it is written last.
//===----------------------------------------------------------------------===//
#include "data/TokenWriter.h"
#include "base/Failure.h"
#include "base/FileStream.h"
#include "data/Data.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

using namespace pcrt;

static constexpr int64_t npyHeaderBytes = 128;

static bool endsWith(const std::string &text, const char *end) {
  return text.size() > strlen(end) && text.compare(text.size() - strlen(end), strlen(end), end) == 0;
}

TokenWriter::TokenWriter(const std::string &path, uint32_t vocabulary)
    : path(path), isNpy(endsWith(path, ".npy")), width(vocabulary <= 1 << 16 ? 2 : 4) {
  if (!isNpy && !endsWith(path, ".bin"))
    fail(PCRT_USAGE, path + ": a file of tokens is NAME.bin or NAME.npy");
  offset = isNpy ? npyHeaderBytes : binHeaderBytes;
  if (!file.open(path))
    failToWrite();
}

void TokenWriter::failToWrite() const { fail(PCRT_RESOURCE, withErrno("cannot write " + path)); }

void TokenWriter::write(const std::vector<uint32_t> &more) {
  tokens += int64_t(more.size());
  if (!isNpy && tokens > INT32_MAX)
    fail(PCRT_USAGE, path + ": a .bin file holds at most 2147483647 tokens; write a .npy file");
  size_t at = buffer.size();
  buffer.resize(at + more.size() * size_t(width));
  for (uint32_t token : more) {
    memcpy(&buffer[at], &token, size_t(width)); // little-endian
    at += size_t(width);
  }
  constexpr size_t full = 1 << 20;
  if (buffer.size() >= full)
    flush();
}

void TokenWriter::flush() {
  if (!writeAll(file.descriptor(), buffer.data(), int64_t(buffer.size()), offset))
    failToWrite();
  offset += int64_t(buffer.size());
  buffer.clear();
}

void TokenWriter::finish() {
  flush();
  std::string header;
  if (isNpy) {
    header = std::string("\x93NUMPY\x01\x00\x76\x00", 10) + "{'descr': '<u" + std::to_string(width) +
             "', 'fortran_order': False, 'shape': (" + std::to_string(tokens) + ",), }";
    header.resize(npyHeaderBytes - 1, ' ');
    header += '\n';
  } else {
    const BinFormat *format =
        std::find_if(std::begin(binFormats), std::end(binFormats), [&](auto &one) { return one.bytes == width; });
    header.resize(binHeaderBytes);
    int32_t words[] = {format->magic, format->version, int32_t(tokens)};
    memcpy(header.data(), words, sizeof words);
  }
  if (!writeAll(file.descriptor(), header.data(), int64_t(header.size()), 0) || !file.commit())
    failToWrite();
}
