//===- EventFile.cpp - Curves for TensorBoard -----------------------------===//
// Encodes the few fields of Event, Summary and SessionLog by hand, without a protocol buffer library (encoding:
// protobuf.dev). A record has its length and masked CRC-32C sums around its bytes.
//===----------------------------------------------------------------------===//
#include "metrics/EventFile.h"
#include "base/Failure.h"

#include <array>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

using namespace pcrt;

namespace {

/// The bytes of a protocol buffer message of bounded size, in the order in which its fields are added.
class Message {
public:
  const char *data() const { return bytes; }
  size_t size() const { return length; }

  void integer(int field, uint64_t value) {
    varint(uint64_t(field) << 3);
    varint(value);
  }
  void number(int field, double value) { fixed(field << 3 | 1, &value, sizeof value); }
  void number(int field, float value) { fixed(field << 3 | 5, &value, sizeof value); }
  void text(int field, const char *value, size_t count) {
    varint(uint64_t(field) << 3 | 2);
    varint(count);
    append(value, count);
  }
  void message(int field, const Message &inner) { text(field, inner.data(), inner.size()); }

private:
  void varint(uint64_t value) {
    for (; value >= 128; value >>= 7)
      bytes[length++] = char(value | 128);
    bytes[length++] = char(value);
  }
  void fixed(int key, const void *value, size_t count) {
    varint(uint64_t(key));
    append(value, count);
  }
  void append(const void *value, size_t count) {
    memcpy(bytes + length, value, count);
    length += count;
  }

  char bytes[1536];
  size_t length = 0;
};

} // namespace

/// The CRC-32C of the data, with the masking of the record format.
static uint32_t maskedSum(const void *data, size_t length) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> table;
    for (uint32_t i = 0; i < 256; ++i) {
      table[i] = i;
      for (int bit = 0; bit < 8; ++bit)
        table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0x82f63b78 : 0);
    }
    return table;
  }();
  uint32_t sum = ~0u;
  for (size_t i = 0; i < length; ++i)
    sum = sum >> 8 ^ table[(sum ^ static_cast<const uint8_t *>(data)[i]) & 255];
  sum = ~sum;
  return (sum >> 15 | sum << 17) + 0xa282ead8;
}

/// The fields that every event has: the time and the step.
static Message eventAt(int64_t step) {
  Message event;
  event.number(1, std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  event.integer(2, uint64_t(step));
  return event;
}

EventFile::EventFile(const std::string &directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    fail(PCRT_RESOURCE, "cannot write to " + directory + ": " + error.message());
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  auto now = std::chrono::system_clock::now().time_since_epoch() / std::chrono::microseconds(1);
  file.open(directory + "/events.out.tfevents." + std::to_string(now / 1000000) + "." + host + "." +
                std::to_string(getpid()) + "." + std::to_string(now % 1000000),
            O_EXCL | O_APPEND);
}

/// Writes the records before all scalars: the version of the format, and the step at which the run begins.
bool EventFile::writeHead() {
  if (!hasVersion) {
    Message version = eventAt(0);
    version.text(3, "brain.Event:2", 13);
    hasVersion = write(version.data(), version.size());
  }
  if (hasVersion && !hasStart) {
    Message log, event = eventAt(firstStep);
    log.integer(1, 1); // SessionLog.START
    event.message(7, log);
    hasStart = write(event.data(), event.size());
  }
  return hasStart;
}

void EventFile::begin(int64_t step) {
  firstStep = step;
  writeHead();
}

void EventFile::add(int64_t step, std::span<const Scalar> scalars) {
  if (!hasStart && !writeHead())
    return;
  Message summary, event = eventAt(step);
  for (const Scalar &scalar : scalars) {
    Message value;
    value.text(1, scalar.tag, strlen(scalar.tag));
    value.number(2, scalar.value);
    summary.message(1, value);
  }
  event.message(5, summary);
  write(event.data(), event.size());
}

bool EventFile::write(const char *event, size_t length) {
  uint64_t size = length;
  uint32_t sumOfSize = maskedSum(&size, sizeof size), sum = maskedSum(event, length);
  iovec parts[] = {
      {&size, sizeof size}, {&sumOfSize, sizeof sumOfSize}, {const_cast<char *>(event), length}, {&sum, sizeof sum}};
  return file.add(parts, 4);
}
