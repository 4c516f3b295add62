//===- TcpMessages.h - The payloads of control messages -------------------===//
// The payloads of TcpControl's messages; TcpMessages.cpp checks them.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_TCPMESSAGES_H
#define PCRT_COMM_TCPMESSAGES_H

#include "comm/MoveKey.h"

#include <cstring>
#include <vector>

namespace pcrt {

/// Start of a Gather's payload; ranks of the members and the data follow.
struct GatherHead {
  MoveKey key;
  int32_t members, me;
};

/// Start of a member's part in a Gathered's payload; the data follow.
struct PartHead {
  MoveKey key;
  int64_t bytes;
};

/// Start of a Failed's payload; the message's text follows.
struct FailedHead {
  int32_t rank, status;
};

/// The T at byte `at`, which need not be aligned.
template <typename T> T readAt(const std::vector<char> &bytes, size_t at) {
  T value;
  memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

} // namespace pcrt

#endif // PCRT_COMM_TCPMESSAGES_H
