//===- Passes.h - Passes of the Overlap room ----------------------------------------===//
// Generated from Passes.td: the passes that start moves early or cut them into windows, and their verifiers. A pass's
// file defines GEN_PASS_DEF_<PASS> before it includes this header.
//===-----------------------------------------------------------------------------===//
#ifndef PC_OVERLAP_PASSES_H
#define PC_OVERLAP_PASSES_H

#include "mlir/Pass/Pass.h"
#include "pc/IR/PC.h"

namespace pc {
#define GEN_PASS_DECL
#include "pc/Overlap/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "pc/Overlap/Passes.h.inc"
} // namespace pc

#endif
