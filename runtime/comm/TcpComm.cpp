//===- TcpComm.cpp - Ranks of any machines, over one connection each ------===//
// Implements Comm by TcpControl: every operation, including a barrier, is a gather, and all members compare its keys.
//===----------------------------------------------------------------------===//
#include "comm/TcpComm.h"
#include "comm/Moves.h"

#include <cstring>

using namespace pcrt;

TcpComm::TcpComm(const Place &place, std::unique_ptr<TcpControl> plane)
    : Comm(place.rank, place.size), plane(std::move(plane)) {}

pcrt_status TcpComm::join(const Place &place, std::unique_ptr<Comm> *out, std::string *error) {
  MeetingPoint point;
  if (!findMeetingPoint(place, &point, error))
    return PCRT_USAGE;
  std::unique_ptr<TcpControl> plane;
  PCRT_TRY(TcpControl::connect(place, point, &plane, error));
  std::unique_ptr<TcpComm> comm(new TcpComm(place, std::move(plane)));
  if (pcrt_status status = comm->barrier(); status != PCRT_OK) {
    *error = comm->error();
    return status;
  }
  *out = std::move(comm);
  return PCRT_OK;
}

pcrt_status TcpComm::gather(const Group &group, const MoveKey &key, const void *mine, int64_t n) {
  std::string error;
  if (pcrt_status status = plane->gather(group, key, mine, n, &parts, &error); status != PCRT_OK)
    return fail(status, error);
  for (int i = 0; i < group.size(); ++i) {
    if (memcmp(&parts[i].key, &key, sizeof key) == 0 && int64_t(parts[i].data.size()) == n)
      continue;
    std::string text = "ranks run different collectives in " + groupName(group) + ": " +
                       describeMismatch(rank(), key, group.ranks[i], parts[i].key);
    plane->giveUp(PCRT_INTERNAL, rankName(rank()) + " stopped: " + text);
    return fail(PCRT_INTERNAL, rankName(rank()) + ": " + text);
  }
  return PCRT_OK;
}

pcrt_status TcpComm::allocateArena(int64_t bytes, char **base) {
  std::string error;
  PCRT_TRY(checkArenas(bytes, &error));
  pcrt_status status = error.empty() ? arena.allocate(bytes, base, &error) : PCRT_RESOURCE;
  if (status == PCRT_OK)
    return barrier();
  plane->giveUp(status, rankName(rank()) + " stopped: " + error);
  return fail(status, rankName(rank()) + ": " + error);
}

pcrt_status TcpComm::barrier() { return gather(world, makeKey("barrier", world), nullptr, 0); }

pcrt_status TcpComm::allGatherBytes(const void *mine, int64_t n, void *all) {
  MoveKey key = makeKey("allGatherBytes", world);
  key.outer = n;
  PCRT_TRY(gather(world, key, mine, n));
  for (int peer = 0; peer < size() && n > 0; ++peer)
    memcpy(static_cast<char *>(all) + peer * n, parts[peer].data.data(), n);
  return PCRT_OK;
}

void TcpComm::abort(pcrt_status status, const char *message) {
  plane->giveUp(status, rankName(rank()) + " failed: " + message);
}

pcrt_status TcpComm::exchange(const pcrt_move_desc &desc, const Group &group, const void *in, void *out,
                              const ParallelFor &parallelFor) {
  int n = group.size();
  int64_t width = elementBytes(desc.dtype), elements = outElements(desc, n);
  PCRT_TRY(gather(group, makeKey(desc, group), in, inElements(desc, n) * width));
  ins.clear();
  for (const TcpControl::Part &part : parts)
    ins.push_back(part.data.data());
  auto *to = static_cast<char *>(out);
  if (desc.kind == PCRT_ALL_REDUCE && elements > 0) {
    // Every member has all addends and adds them in the same order.
    parallelFor(elements, [&](int64_t lo, int64_t hi) {
      reduceElements(desc.dtype, desc.reduction, ins.data(), n, &to, 1, lo, hi);
    });
    return PCRT_OK;
  }
  std::vector<char *> outs(n);
  outs[group.me] = to;
  const char *problem = carryOutShare(desc, n, group.me, ins.data(), outs.data(), parallelFor);
  return problem ? fail(PCRT_INTERNAL, rankName(rank()) + ": " + describeMove(desc, n) + ": " + problem) : PCRT_OK;
}

//===----------------------------------------------------------------------===//
// Flows
//===----------------------------------------------------------------------===//

pcrt_status TcpComm::prepareFlows() {
  plane->openFlows(flows.size());
  return barrier();
}

pcrt_status TcpComm::put(Flow &flow, int index, const void *data) {
  std::string error;
  pcrt_status status = plane->sendLetter(flow, index, data, &error);
  return status == PCRT_OK ? status : fail(status, error);
}

pcrt_status TcpComm::take(Flow &flow, int index, void *data) {
  std::string error;
  pcrt_status status = plane->takeLetter(flow, index, data, &error);
  return status == PCRT_OK ? status : fail(status, error);
}
