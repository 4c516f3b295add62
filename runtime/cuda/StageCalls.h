//===- StageCalls.h - The calls to other ranks in a stage's step ----------===//
// An executable has the programs of all stages, so every rank can call their functions and note what they call. From
// these calls all ranks compute the same order of messages (comm/MessageOrder.h).
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_STAGECALLS_H
#define PCRT_CUDA_STAGECALLS_H

#include "comm/MessageOrder.h"
#include "device/Context.h"

namespace pcrt::cuda {

/// Returns when the receives of this rank's stage begin in `function`, the step or the evaluation. Throws PCRT_INTERNAL
/// if stages would wait for each other in a cycle.
std::vector<PlacedReceive> placeReceives(const pcrt_context &context,
                                         decltype(pcrt_program::step) pcrt_program::*function);

} // namespace pcrt::cuda

#endif // PCRT_CUDA_STAGECALLS_H
