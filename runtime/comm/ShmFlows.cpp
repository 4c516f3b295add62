//===- ShmFlows.cpp - Messages between ranks of one machine ---------------===//
// The ring of a flow lies in the memory of the rank that receives: the source copies messages into it, and the
// destination copies them out. It is equivalent to a buffered MPI_Send that blocks when all slots are full.
//===----------------------------------------------------------------------===//
#include "comm/ShmComm.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

using namespace pcrt;

/// The bytes from one slot of a ring to the next.
static int64_t slotStride(int64_t bytes) { return (bytes + 127) / 128 * 128; }

pcrt_status ShmComm::prepareFlows() {
  int64_t own = flowsOffset(rank()), at = int64_t(flows.size() * sizeof(FlowHeader));
  std::vector<int64_t> rings;
  for (const Flow &flow : flows) {
    rings.push_back(own + at);
    at += flow.sends ? 0 : flow.slots * slotStride(flow.bytes);
  }
  Mapping &mapping = flowMaps[rank()];
  if (at && !map(mapping, own, at))
    return giveUp(PCRT_RESOURCE, "cannot map " + std::to_string(at) + " bytes for messages: " + strerror(errno));
  control.rank(rank()).flows.store(mapping.bytes);
  for (size_t i = 0; i < flows.size(); ++i) {
    if (flows[i].sends)
      continue;
    FlowHeader &header = flowAt(own + int64_t(i * sizeof(FlowHeader)));
    header.ring = rings[i];
    header.slots = flows[i].slots;
    header.messages = flows[i].messages;
    snprintf(header.name, sizeof header.name, "%s", flows[i].name.c_str());
    // Touches the pages now, not during a step.
    memset(peerPointer(rank(), rings[i]), 0, flows[i].slots * slotStride(flows[i].bytes));
  }
  PCRT_TRY(barrier());
  for (const Flow &flow : flows)
    if (flow.sends && !peerPointer(flow.peer, flowsOffset(flow.peer)))
      return giveUp(PCRT_RESOURCE, "cannot map the memory of " + rankName(flow.peer) + ": " + strerror(errno));
  return PCRT_OK;
}

pcrt_status ShmComm::put(Flow &flow, int, const void *data) {
  int64_t offset = flowsOffset(flow.peer) + int64_t(flow.partner * sizeof(FlowHeader));
  FlowHeader &header = flowAt(offset);
  if (flow.count > uint64_t(flow.slots)) {
    Goal free{flow.count - flow.slots, true};
    PCRT_TRY(waitAt(header, {flow.peer, free, nullptr, offset}));
  }
  char *slot = peerPointer(flow.peer, header.ring) + int64_t((flow.count - 1) % flow.slots) * slotStride(flow.bytes);
  memcpy(slot, data, flow.bytes);
  header.sent.store(flow.count, std::memory_order_release);
  return PCRT_OK;
}

pcrt_status ShmComm::take(Flow &flow, int index, void *data) {
  int64_t offset = flowsOffset(rank()) + int64_t(index * sizeof(FlowHeader));
  FlowHeader &header = flowAt(offset);
  PCRT_TRY(waitAt(header, {flow.peer, {flow.count, false}, nullptr, offset}));
  memcpy(data, peerPointer(rank(), header.ring) + int64_t((flow.count - 1) % flow.slots) * slotStride(flow.bytes),
         flow.bytes);
  header.received.store(flow.count, std::memory_order_release);
  return PCRT_OK;
}
