//===- TcpMessages.h - What follows the header of a control message -------===//
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

struct FailedHead {
  int32_t rank, status;
};

template <typename T> T readAt(const std::vector<char> &bytes, size_t at) {
  T value;
  memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

} // namespace pcrt

#endif // PCRT_COMM_TCPMESSAGES_H
