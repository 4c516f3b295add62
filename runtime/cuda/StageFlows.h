//===- StageFlows.h - Messages between stages, on a CUDA device -----------===//
// With NCCL, each flow has a stream (its lane) and a ring of slots on the device. A send copies into a slot on the
// compute stream and continues; the lane sends the slot. A receive begins before the step reads it, at the place among
// this rank's sends and moves that comm/MessageOrder.h chose. Events order compute stream and lanes, so that a step can
// be captured. Messages between virtual ranks and through host memory need neither lanes nor slots.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_STAGEFLOWS_H
#define PCRT_CUDA_STAGEFLOWS_H

#include "base/Program.h"
#include "comm/MessageOrder.h"
#include "cuda/DeviceComm.h"
#include "cuda/Memory.h"
#include "device/Context.h"

namespace pcrt::cuda {

/// The flows of one rank. Only the rank's thread calls this object. It owns slots, streams and events. Calls enqueue
/// work and return the status. After a failure, `result` or comm.error() describes it.
class StageFlows {
public:
  /// Creates streams, events and slots, and connects all flows of the run, including those between hosts. All ranks of
  /// a pipeline call the constructor.
  StageFlows(Session &session, const pcrt_context &context, DeviceComm &comm);

  /// Call `begin` before and `end` after the calls of a step, whose receives begin as `receives` says until `end`.
  /// `end` makes the compute stream wait for the lanes. After PCRT_INTERNAL without a message in comm.error(), the
  /// driver's `result` has the reason.
  pcrt_status begin(const std::vector<PlacedReceive> &receives);
  pcrt_status end();

  /// Call `beforeMove` before a move of the step that has traffic, instead of send or receive.
  pcrt_status beforeMove() { return beginReceives(); }
  pcrt_status send(int index, const void *data);
  pcrt_status receive(int index, void *data);

  Result result = Success; ///< The result of the driver's call that failed.

private:
  /// The slots of a flow on this device: message i uses slot i % (number of slots).
  struct Ring {
    const pcrt_flow *flow;
    Stream lane;
    char *slots;
    int64_t stride;

    int slotOf(int number) const { return number % flow->slots; }
    char *at(int number) const { return slots + slotOf(number) * stride; }
    std::vector<Event> filled, emptied; ///< Events of each slot: it holds a message, and it is free again.
    int count = 0;                      ///< How many messages of this step are enqueued: sent, or read.
    int begun = 0;                      ///< How many receives are enqueued.
  };

  pcrt_status check(Result got);
  /// Enqueues the receives that belong before the next call.
  pcrt_status beginReceives();
  pcrt_status copy(void *to, const void *from, int64_t bytes);

  Session &session;
  DeviceComm &comm;
  DeviceArena memory;
  std::vector<Ring> rings; ///< One for each flow; empty without lanes.
  Event begun = nullptr;
  size_t calls = 0;                                                   ///< The number of calls of this step so far.
  const PlacedReceive *nextReceive = nullptr, *lastReceive = nullptr; ///< Those of this step that have not begun.
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_STAGEFLOWS_H
