//===- Passes.h - Passes of the Shard room ----------------------------------------===//
// step -> placed: the mesh, one tactic per strategy, move fusion, erasure and the verifier of the phase.
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
