//===- StageFlows.h - Messages between stages, on a CUDA device -----------===//
// With NCCL, each flow has streams (lanes) and a ring of slots on the device. A send copies into a slot on the compute
// stream and continues; a lane sends the slot. A receive is posted as soon as its slot is free, before the step reads
// it. Events order compute stream and lanes, so that a step can be captured. Messages between virtual ranks and through
// host memory need neither lanes nor slots.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_STAGEFLOWS_H
#define PCRT_CUDA_STAGEFLOWS_H

#include "base/Program.h"
#include "cuda/DeviceComm.h"
#include "cuda/Memory.h"
#include "device/Context.h"

namespace pcrt::cuda {

/// The flows of one rank. Only the rank's thread calls this object. It owns slots, streams and events. Calls enqueue
/// work and return the status. After a failure, `result` or comm.error() describes it.
class StageFlows {
public:
  /// Creates streams, events and slots, and connects all flows of the run, including those between hosts. All ranks of
  /// a pipeline call the constructor. Throws PCRT_RESOURCE if more streams must not delay each other than there are
  /// hardware queues.
  StageFlows(Session &session, const pcrt_context &context, DeviceComm &comm);

  /// Call `begin` before and `end` after the calls of a step. `messages` has the number of messages of each flow.
  /// `begin` posts the first receives. `end` makes the compute stream wait for the lanes. After PCRT_INTERNAL without a
  /// message in comm.error(), the driver's `result` has the reason.
  pcrt_status begin(const std::vector<int64_t> &messages);
  pcrt_status end();

  pcrt_status send(int index, const void *data);
  pcrt_status receive(int index, void *data);

  Result result = Success; ///< The result of the driver's call that failed.

private:
  /// The slots of a flow on this device: message i uses slot i % (number of slots).
  struct Ring {
    const pcrt_flow *flow;
    std::vector<Stream> lanes;
    char *slots;
    int64_t stride;

    Stream laneOf(int number) const { return lanes[number % lanes.size()]; }
    int slotOf(int number) const { return number % flow->slots; }
    char *at(int number) const { return slots + slotOf(number) * stride; }
    std::vector<Event> filled, emptied; ///< Events of each slot: it holds a message, and it is free again.
    int messages = 0, count = 0;        ///< The number of messages in this step, and how many of them are enqueued.
  };

  pcrt_status check(Result got);
  /// Enqueues the receive of message `number` on its lane.
  pcrt_status post(int index, int number);
  pcrt_status copy(void *to, const void *from, int64_t bytes);

  Session &session;
  DeviceComm &comm;
  DeviceArena memory;
  std::vector<Ring> rings; ///< One for each flow; empty without lanes.
  Event begun = nullptr;
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_STAGEFLOWS_H
