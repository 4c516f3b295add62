//===- Passes.h - Passes of the Memory room ----------------------------------------===//
// Generated from Passes.td: the pass that gives values their homes, and the verifier of its phase. A pass's file
// defines GEN_PASS_DEF_<PASS> before it includes this header.
//===-----------------------------------------------------------------------------===//
#ifndef PC_MEMORY_PASSES_H
#define PC_MEMORY_PASSES_H

#include "mlir/Pass/Pass.h"
#include "pc/IR/PC.h"

namespace pc {
#define GEN_PASS_DECL
#include "pc/Memory/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "pc/Memory/Passes.h.inc"
} // namespace pc

#endif
