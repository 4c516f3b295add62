//===- Passes.h - The pass of the Raise room -----------------------------------------===//
// Generated from Passes.td: the pass that replaces ops that a front end spells out in smaller ops. The pass's file
// defines GEN_PASS_DEF_RAISE before it includes this header.
//===-----------------------------------------------------------------------------===//
#ifndef PC_RAISE_PASSES_H
#define PC_RAISE_PASSES_H

#include "mlir/Pass/Pass.h"
#include "pc/IR/PC.h"

namespace pc {
#define GEN_PASS_DECL
#include "pc/Raise/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "pc/Raise/Passes.h.inc"
} // namespace pc

#endif
