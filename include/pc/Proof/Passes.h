//===- Passes.h - Passes of the Proof room ------------------------------------------===//
// Generated from Passes.td: the proof as a pass. The pass's file defines GEN_PASS_DEF_<PASS> before it includes this
// header.
//===-----------------------------------------------------------------------------===//
#ifndef PC_PROOF_PASSES_H
#define PC_PROOF_PASSES_H

#include "mlir/Pass/Pass.h"
#include "pc/IR/PC.h"

namespace pc {
#define GEN_PASS_DECL
#include "pc/Proof/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "pc/Proof/Passes.h.inc"
} // namespace pc

#endif
