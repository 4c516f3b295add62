//===- StageFlows.h - Messages between stages, on a CUDA device -----------===//
// By NCCL each flow has streams (lanes) and a ring of slots on the device. A send copies into a slot on the compute
// stream and goes on; a lane sends the slot. Receives are posted as soon as their slot is free, ahead of the step that
// reads them. Events order the two, so that a step can be captured. Between virtual ranks and through host memory
// messages need none of this.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_STAGEFLOWS_H
#define PCRT_CUDA_STAGEFLOWS_H

#include "base/Program.h"
#include "cuda/DeviceComm.h"
#include "cuda/Memory.h"

namespace pcrt::cuda {

class StageFlows {
public:
  /// Makes streams, events and slots, and connects all flows of the run. All ranks of a pipeline call it. Throws:
  /// PCRT_RESOURCE where the driver has fewer hardware queues than streams that have to go on while others wait.
  StageFlows(Session &session, const Program &program, Comm &control, DeviceComm &comm);

  /// Around the calls of a step: posts the first receives, and lets the compute stream wait for what is under way.
  /// PCRT_INTERNAL without a message in comm.error(): the driver's `result` says why.
  pcrt_status begin();
  pcrt_status end();

  pcrt_status send(int index, const void *data);
  pcrt_status receive(int index, void *data);

  Result result = Success; ///< Of the call of the driver that failed.

private:
  struct Ring {
    const pcrt_flow *flow;
    std::vector<Stream> lanes;
    char *slots;
    int64_t stride;

    Stream laneOf(int number) const { return lanes[number % lanes.size()]; }
    int slotOf(int number) const { return number % flow->slots; }
    char *at(int number) const { return slots + slotOf(number) * stride; }
    std::vector<Event> filled, emptied; ///< By slot: when it holds a message, and when it is free again.
    int count = 0;                      ///< Messages of this step.
  };

  pcrt_status check(Result got);
  /// Enqueues the receive of message `number` on its lane.
  pcrt_status post(int index, int number);
  pcrt_status copy(void *to, const void *from, int64_t bytes);

  Session &session;
  DeviceComm &comm;
  DeviceArena memory;
  std::vector<Ring> rings; ///< By flow; none without lanes.
  Event begun = nullptr;
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_STAGEFLOWS_H
