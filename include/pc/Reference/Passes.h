//===- Passes.h - Passes of the Reference room ----------------------------------------===//
// Generated from Passes.td: passes that interpret a program and print or compare what it computes. A pass's file
// defines GEN_PASS_DEF_<PASS> before it includes this header.
//===-----------------------------------------------------------------------------===//
#ifndef PC_REFERENCE_PASSES_H
#define PC_REFERENCE_PASSES_H

#include "mlir/Pass/Pass.h"
#include "pc/IR/PC.h"

namespace pc {
#define GEN_PASS_DECL
#include "pc/Reference/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "pc/Reference/Passes.h.inc"
} // namespace pc

#endif
