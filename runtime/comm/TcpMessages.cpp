//===- TcpMessages.cpp - Which control messages make sense ----------------===//
// Ranks have proved that they belong to the run, but a rank may be built from other sources, or may have overwritten
// its memory. Messages are checked before their lengths determine how much memory is allocated, and before they are
// used.
//===----------------------------------------------------------------------===//
#include "comm/TcpMessages.h"
#include "comm/TcpControl.h"

using namespace pcrt;

/// Returns true if a text ends within its array.
template <size_t N> static bool isText(const char (&text)[N]) { return memchr(text, 0, N) != nullptr; }

/// Returns true if a header that `sender` sent is valid. Its `group` is a group if the message belongs to a gather, and
/// a rank otherwise.
bool TcpControl::isSound(const Header &header, int sender) const {
  constexpr int64_t most = int64_t(1) << 40, mostText = 1 << 16;
  constexpr uint64_t mostFlows = 1 << 16;
  auto isRank = [&](int rank) { return rank >= 0 && rank < numRanks; };
  // Only rank 0 forwards messages of other ranks.
  if (header.magic != kMagic || header.bytes < 0 || header.bytes > most || !isRank(header.from) ||
      (myRank == 0 && header.from != sender))
    return false;
  switch (header.kind) {
  case Gather:
    return myRank == 0 && header.group >= 0 && header.group < kMaxGroups && header.bytes >= int64_t(sizeof(GatherHead));
  case Gathered:
    return myRank != 0 && header.group >= 0 && header.group < kMaxGroups;
  case Failed:
    return header.bytes >= int64_t(sizeof(FailedHead)) && header.bytes <= mostText;
  case Goodbye:
    return header.bytes == 0;
  case Question:
    return isRank(header.group) && header.bytes == 0;
  case Answer:
    return isRank(header.group) && header.bytes == sizeof(Progress);
  case Letter:
    return isRank(header.group) && header.sequence < mostFlows;
  case Taken:
    return isRank(header.group) && header.sequence < mostFlows && header.bytes == 0;
  default:
    return false;
  }
}

/// Returns true if the payload of a message with a valid header is also valid. Call it under the lock.
bool TcpControl::isSound(const Header &header, const Bytes &message) const {
  if (header.kind == Answer)
    return isText(readAt<Progress>(message, sizeof header).doing);
  if (header.kind == Gathered) {
    int parts = 0;
    for (size_t at = sizeof header; at < message.size(); ++parts) {
      if (message.size() - at < sizeof(PartHead))
        return false;
      auto part = readAt<PartHead>(message, at);
      at += sizeof part;
      if (!isText(part.key.name) || part.bytes < 0 || uint64_t(part.bytes) > message.size() - at)
        return false;
      at += size_t(part.bytes);
    }
    return current.kind == kNoGather || parts == current.members;
  }
  if (header.kind != Gather)
    return true;
  auto head = readAt<GatherHead>(message, sizeof header);
  if (!isText(head.key.name) || head.members < 1 || head.members > numRanks || head.me < 0 || head.me >= head.members ||
      header.bytes < int64_t(sizeof head + head.members * sizeof(int32_t)))
    return false;
  for (int member = 0; member < head.members; ++member) {
    auto rank = readAt<int32_t>(message, sizeof header + sizeof head + member * sizeof(int32_t));
    if (rank < 0 || rank >= numRanks || (member == head.me && rank != header.from))
      return false;
  }
  return true;
}
