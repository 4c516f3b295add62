//===- TcpMessages.h - The payloads of control messages -------------------===//
// The payloads of TcpControl's messages; TcpMessages.cpp checks them.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_TCPMESSAGES_H
#define PCRT_COMM_TCPMESSAGES_H

#include "comm/MoveKey.h"

#include <cstring>
#include <vector>

namespace pcrt {

/// The start of a Gather's payload. The ranks of the members and the data follow it.
struct GatherHead {
  MoveKey key;
  int32_t members, me;
};

/// The start of a member's part in a Gathered's payload. The data follow it.
struct PartHead {
  MoveKey key;
  int64_t bytes;
};

/// The start of a Failed's payload. The text of the message follows it.
struct FailedHead {
  int32_t rank, status;
};

/// Reads a T at byte `at`, which need not be aligned.
template <typename T> T readAt(const std::vector<char> &bytes, size_t at) {
  T value;
  memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

} // namespace pcrt

#endif // PCRT_COMM_TCPMESSAGES_H
