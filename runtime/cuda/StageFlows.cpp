//===- StageFlows.cpp - Messages between stages, on a CUDA device ---------===//
// A program knows its own flows, and those of other stages that end at it. allFlows merges the flows of all programs in
// one order. Every rank opens its communicators in this order.
//===----------------------------------------------------------------------===//
#include "cuda/StageFlows.h"
#include "base/Failure.h"
#include "comm/Collective.h"
#include "device/Context.h"

using namespace pcrt;
using namespace pcrt::cuda;

/// All flows of the run, in one order on all ranks.
static std::vector<DeviceFlow> allFlows(const Program &program, int rank) {
  std::vector<DeviceFlow> all;
  const Mesh &mesh = program.mesh;
  int64_t stride = 1;
  for (size_t axis = program.stageAxis + 1; axis < mesh.sizes.size(); ++axis)
    stride *= mesh.sizes[axis];
  for (const Program *source : program.stages)
    for (int i = 0; i < source->abi.num_flows; ++i) {
      const pcrt_flow &flow = source->abi.flows[i];
      if (!flow.sends)
        continue;
      DeviceFlow one;
      one.flow = &flow;
      if (program.stage == source->stage || program.stage == flow.stage) {
        one.sends = program.stage == source->stage;
        one.source = rank + int((source->stage - program.stage) * stride);
        one.index = i;
        for (int mine = 0; !one.sends && mine < program.abi.num_flows; ++mine)
          if (const pcrt_flow &end = program.abi.flows[mine];
              !end.sends && end.stage == source->stage && end.id == flow.id)
            one.index = mine;
      }
      all.push_back(one);
    }
  return all;
}

/// Checks that each lane has a separate hardware queue: a receive that waits for a message holds up later work in its
/// queue, for which the sender may wait. Moves of groups need only the program's order, which a single queue also
/// keeps.
static void requireQueues(const Session &session, int lanes) {
  int streams = session.numStreams();
  if (lanes == 0 || streams <= session.queues)
    return;
  fail(PCRT_RESOURCE,
       "messages between stages need " + std::to_string(streams) + " independent streams (" + std::to_string(lanes) +
           " for messages, " + std::to_string(streams - lanes - 1) +
           " for groups of ranks, one for computation), but the number of hardware queues of this process is " +
           std::to_string(session.queues) +
           " (CUDA_DEVICE_MAX_CONNECTIONS), and streams that share a queue could wait for each other forever; " +
           (streams <= 32 ? "unset it" : "use fewer chunks, or PCRT_CUDA_COMM=host"));
}

StageFlows::StageFlows(Session &session, const pcrt_context &context, DeviceComm &comm)
    : session(session), comm(comm), memory(session) {
  const Program &program = context.program;
  Comm &control = context.comm;
  // The control plane compares the ends.
  requireOk(control, control.openFlows(context.flows));
  if (comm.hasLanes())
    onAllRanks(control, [&] { requireQueues(session, lanesOf(program.abi)); });
  comm.openFlows(allFlows(program, control.rank()));
  if (!comm.hasLanes())
    return;
  onAllRanks(control, [&] {
    begun = session.makeEvent();
    int64_t total = 0;
    for (int i = 0; i < program.abi.num_flows; ++i) {
      const pcrt_flow &flow = program.abi.flows[i];
      Ring ring{&flow, {}, nullptr, (flow.bytes + 511) / 512 * 512, {}, {}};
      for (int lane = 0; lane < lanesOf(flow); ++lane)
        ring.lanes.push_back(session.makeMoveStream());
      for (int slot = 0; slot < flow.slots; ++slot) {
        ring.filled.push_back(session.makeEvent());
        ring.emptied.push_back(session.makeEvent());
      }
      total += flow.slots * ring.stride;
      rings.push_back(std::move(ring));
    }
    if (total == 0)
      return;
    char *at = memory.allocate(total);
    session.nameMemory(at, memory.mappedBytes(), "the messages of rank " + std::to_string(control.rank()));
    for (Ring &ring : rings) {
      ring.slots = at;
      at += ring.flow->slots * ring.stride;
    }
  });
}

pcrt_status StageFlows::check(Result got) {
  result = got;
  return got == Success ? PCRT_OK : PCRT_INTERNAL;
}

pcrt_status StageFlows::copy(void *to, const void *from, int64_t bytes) {
  return check(session.driver.cuMemcpyDtoDAsync_v2(reinterpret_cast<Address>(to), reinterpret_cast<Address>(from),
                                                   size_t(bytes), session.compute));
}

pcrt_status StageFlows::post(int index, int number) {
  Ring &ring = rings[index];
  Stream lane = ring.laneOf(number);
  Event emptied = number < ring.flow->slots ? begun : ring.emptied[ring.slotOf(number)];
  PCRT_TRY(check(session.driver.cuStreamWaitEvent(lane, emptied, 0)));
  PCRT_TRY(comm.enqueueMessage(index, number, ring.at(number), lane));
  return check(session.driver.cuEventRecord(ring.filled[ring.slotOf(number)], lane));
}

pcrt_status StageFlows::begin(const std::vector<int64_t> &messages) {
  if (!comm.hasLanes())
    return PCRT_OK;
  PCRT_TRY(check(session.driver.cuEventRecord(begun, session.compute)));
  for (size_t i = 0; i < rings.size(); ++i) {
    Ring &ring = rings[i];
    ring.count = 0;
    ring.messages = int(messages[i]);
    int ahead = std::min(int(ring.lanes.size()), ring.messages);
    for (int number = 0; !ring.flow->sends && number < ahead; ++number)
      PCRT_TRY(post(int(i), number));
  }
  return PCRT_OK;
}

pcrt_status StageFlows::end() {
  for (Ring &ring : rings)
    for (int number = std::max(0, ring.count - ring.flow->slots); ring.flow->sends && number < ring.count; ++number)
      if (pcrt_status status =
              check(session.driver.cuStreamWaitEvent(session.compute, ring.emptied[ring.slotOf(number)], 0));
          status != PCRT_OK)
        return status;
  return PCRT_OK;
}

pcrt_status StageFlows::send(int index, const void *data) {
  if (!comm.hasLanes())
    return comm.enqueueSend(index, data, session.compute);
  const Driver &driver = session.driver;
  Ring &ring = rings[index];
  int number = ring.count++, slot = ring.slotOf(number);
  Stream lane = ring.laneOf(number);
  if (number >= ring.flow->slots)
    PCRT_TRY(check(driver.cuStreamWaitEvent(session.compute, ring.emptied[slot], 0)));
  PCRT_TRY(copy(ring.at(number), data, ring.flow->bytes));
  PCRT_TRY(check(driver.cuEventRecord(ring.filled[slot], session.compute)));
  PCRT_TRY(check(driver.cuStreamWaitEvent(lane, ring.filled[slot], 0)));
  PCRT_TRY(comm.enqueueMessage(index, number, ring.at(number), lane));
  return check(driver.cuEventRecord(ring.emptied[slot], lane));
}

pcrt_status StageFlows::receive(int index, void *data) {
  if (!comm.hasLanes())
    return comm.enqueueReceive(index, data, session.compute);
  const Driver &driver = session.driver;
  Ring &ring = rings[index];
  int number = ring.count++, slot = ring.slotOf(number), next = number + int(ring.lanes.size());
  PCRT_TRY(check(driver.cuStreamWaitEvent(session.compute, ring.filled[slot], 0)));
  PCRT_TRY(copy(data, ring.at(number), ring.flow->bytes));
  PCRT_TRY(check(driver.cuEventRecord(ring.emptied[slot], session.compute)));
  return next < ring.messages ? post(index, next) : PCRT_OK;
}
