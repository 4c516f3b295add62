//===- MemoryUse.h - What lies in the arena when it is fullest ---------------------------------===//
#ifndef PC_LIB_COST_MEMORYUSE_H
#define PC_LIB_COST_MEMORYUSE_H

#include "pc/IR/PC.h"

namespace pc {

/// Bytes (see Report.h); they add up to the arena.
struct MemoryUse {
  int64_t parameters = 0, gradients = 0, optimizer = 0, activations = 0, communication = 0, workspace = 0;
};

/// `body` is the block of a planned step.
MemoryUse memoryUse(mlir::Block &body, int64_t arenaBytes);

} // namespace pc

#endif
