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

StageFlows::StageFlows(Session &session, const pcrt_context &context, DeviceComm &comm)
    : session(session), comm(comm), memory(session) {
  const Program &program = context.program;
  Comm &control = context.comm;
  // The control plane compares the ends.
  requireOk(control, control.openFlows(context.flows));
  comm.openFlows(allFlows(program, control.rank()));
  if (!comm.hasLanes())
    return;
  onAllRanks(control, [&] {
    begun = session.makeEvent();
    int64_t total = 0;
    for (int i = 0; i < program.abi.num_flows; ++i) {
      const pcrt_flow &flow = program.abi.flows[i];
      Ring ring{&flow, session.makeMoveStream(), nullptr, (flow.bytes + 511) / 512 * 512, {}, {}};
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

pcrt_status StageFlows::beginReceives() {
  for (; nextReceive != lastReceive && nextReceive->call == calls; ++nextReceive) {
    const int index = nextReceive->flow;
    Ring &ring = rings[index];
    const int number = ring.begun++, slot = ring.slotOf(number);
    Event free = number < ring.flow->slots ? begun : ring.emptied[slot];
    PCRT_TRY(check(session.driver.cuStreamWaitEvent(ring.lane, free, 0)));
    PCRT_TRY(comm.enqueueMessage(index, number, ring.at(number), ring.lane));
    PCRT_TRY(check(session.driver.cuEventRecord(ring.filled[slot], ring.lane)));
  }
  ++calls;
  return PCRT_OK;
}

pcrt_status StageFlows::begin(const std::vector<PlacedReceive> &receives) {
  if (!comm.hasLanes())
    return PCRT_OK;
  calls = 0;
  nextReceive = receives.data();
  lastReceive = nextReceive + receives.size();
  for (Ring &ring : rings)
    ring.count = ring.begun = 0;
  return check(session.driver.cuEventRecord(begun, session.compute));
}

pcrt_status StageFlows::end() {
  for (Ring &ring : rings)
    for (int number = std::max(0, ring.count - ring.flow->slots); ring.flow->sends && number < ring.count; ++number)
      PCRT_TRY(check(session.driver.cuStreamWaitEvent(session.compute, ring.emptied[ring.slotOf(number)], 0)));
  return PCRT_OK;
}

pcrt_status StageFlows::send(int index, const void *data) {
  if (!comm.hasLanes())
    return comm.enqueueSend(index, data, session.compute);
  PCRT_TRY(beginReceives());
  const Driver &driver = session.driver;
  Ring &ring = rings[index];
  int number = ring.count++, slot = ring.slotOf(number);
  if (number >= ring.flow->slots)
    PCRT_TRY(check(driver.cuStreamWaitEvent(session.compute, ring.emptied[slot], 0)));
  PCRT_TRY(copy(ring.at(number), data, ring.flow->bytes));
  PCRT_TRY(check(driver.cuEventRecord(ring.filled[slot], session.compute)));
  PCRT_TRY(check(driver.cuStreamWaitEvent(ring.lane, ring.filled[slot], 0)));
  PCRT_TRY(comm.enqueueMessage(index, number, ring.at(number), ring.lane));
  return check(driver.cuEventRecord(ring.emptied[slot], ring.lane));
}

pcrt_status StageFlows::receive(int index, void *data) {
  if (!comm.hasLanes())
    return comm.enqueueReceive(index, data, session.compute);
  PCRT_TRY(beginReceives());
  const Driver &driver = session.driver;
  Ring &ring = rings[index];
  int number = ring.count++, slot = ring.slotOf(number);
  PCRT_TRY(check(driver.cuStreamWaitEvent(session.compute, ring.filled[slot], 0)));
  PCRT_TRY(copy(data, ring.at(number), ring.flow->bytes));
  return check(driver.cuEventRecord(ring.emptied[slot], session.compute));
}
