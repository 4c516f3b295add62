//===- Replicas.h - Copies that have to be alike --------------------------===//
// Ranks that hold the same block of a parameter, or of what the optimizer keeps for it, hold the same bits after every
// step. Where they do not, memory or a link is damaged, and every step from there on is wrong in silence.
//===----------------------------------------------------------------------===//
#ifndef PCRT_REPLICAS_REPLICAS_H
#define PCRT_REPLICAS_REPLICAS_H

#include "base/Program.h"
#include "comm/Comm.h"
#include "device/Device.h"

namespace pcrt {

/// Compares what all ranks hold after `steps` steps, by its sums; copies of tied weights on several stages, too.
/// Throws PCRT_BAD_DATA on all ranks where copies differ. All ranks call it.
void checkReplicas(const Program &program, Device &device, Comm &comm, int64_t steps);

} // namespace pcrt

#endif // PCRT_REPLICAS_REPLICAS_H
