//===- Passes.h - Passes of the Cost room ----------------------------------------===//
// Generated from Passes.td: the pass that prints a report. Its file defines GEN_PASS_DEF_<PASS> before it includes this
// header.
//===-----------------------------------------------------------------------------===//
#ifndef PC_COST_PASSES_H
#define PC_COST_PASSES_H

#include "mlir/Pass/Pass.h"
#include "pc/IR/PC.h"

namespace pc {
#define GEN_PASS_DECL
#include "pc/Cost/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "pc/Cost/Passes.h.inc"
} // namespace pc

#endif
