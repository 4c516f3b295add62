//===- Passes.h - Passes of the Search room -----------------------------------------===//
// Generated from Passes.td: the search of a plan as a pass, for pc-opt. The pass's file defines GEN_PASS_DEF_<PASS>
// before it includes this header.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SEARCH_PASSES_H
#define PC_SEARCH_PASSES_H

#include "mlir/Pass/Pass.h"
#include "pc/IR/PC.h"

namespace pc {
#define GEN_PASS_DECL
#include "pc/Search/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "pc/Search/Passes.h.inc"
} // namespace pc

#endif
