//===- Passes.h - Passes of the Shard room ----------------------------------------===//
// Generated from Passes.td: the passes from step to placed, which set the mesh, fuse moves, erase placements and verify
// the phase.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SHARD_PASSES_H
#define PC_SHARD_PASSES_H

#include "mlir/Pass/Pass.h"
#include "pc/IR/PC.h"

namespace pc {
#define GEN_PASS_DECL
#include "pc/Shard/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "pc/Shard/Passes.h.inc"
} // namespace pc

#endif
