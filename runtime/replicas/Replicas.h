//===- Replicas.h - Checks that copies are equal --------------------------===//
// Ranks that hold the same block of a parameter or of its optimizer's states hold the same bits after every step. If
// they do not, memory or a link is damaged, and all later steps would silently be wrong.
//===----------------------------------------------------------------------===//
#ifndef PCRT_REPLICAS_REPLICAS_H
#define PCRT_REPLICAS_REPLICAS_H

#include "base/Program.h"
#include "comm/Comm.h"
#include "device/Device.h"

namespace pcrt {

/// Compares the checksums of all copies after `steps` steps, including copies of tied weights on several stages. Throws
/// PCRT_BAD_DATA on all ranks if copies differ. All ranks call it.
void checkReplicas(const Program &program, Device &device, Comm &comm, int64_t steps);

} // namespace pcrt

#endif // PCRT_REPLICAS_REPLICAS_H
