//===- Passes.h - Passes of the Localize room ----------------------------------------===//
// Generated from Passes.td: the pass that writes the program of one rank, and the verifier of its phase. A pass's file
// defines GEN_PASS_DEF_<PASS> before it includes this header.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LOCALIZE_PASSES_H
#define PC_LOCALIZE_PASSES_H

#include "mlir/Pass/Pass.h"
#include "pc/IR/PC.h"

namespace pc {
#define GEN_PASS_DECL
#include "pc/Localize/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "pc/Localize/Passes.h.inc"
} // namespace pc

#endif
