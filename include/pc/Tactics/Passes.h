//===- Passes.h - Passes of the Tactics room -----------------------------------------===//
// Generated from Passes.td: one pass per parallel strategy. A pass's file defines GEN_PASS_DEF_<PASS> before it
// includes this header.
//===-----------------------------------------------------------------------------===//
#ifndef PC_TACTICS_PASSES_H
#define PC_TACTICS_PASSES_H

#include "mlir/Pass/Pass.h"
#include "pc/IR/PC.h"

namespace pc {
#define GEN_PASS_DECL
#include "pc/Tactics/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "pc/Tactics/Passes.h.inc"
} // namespace pc

#endif
