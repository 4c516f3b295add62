//===- Passes.td - Passes of the Shard room ---------------------------------------===//
#ifndef PC_SHARD_PASSES_TD
#define PC_SHARD_PASSES_TD

include "mlir/Pass/PassBase.td"

#endif
