//===- Passes.h - Passes of the Codegen room ----------------------------------------===//
// Generated from Passes.td: the passes that fuse ops and write kernels and the host program. A pass's file defines
// GEN_PASS_DEF_<PASS> before it includes this header.
//===-----------------------------------------------------------------------------===//
#ifndef PC_CODEGEN_PASSES_H
#define PC_CODEGEN_PASSES_H

#include "mlir/Pass/Pass.h"
#include "pc/IR/PC.h"

namespace pc {
#define GEN_PASS_DECL
#include "pc/Codegen/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "pc/Codegen/Passes.h.inc"
} // namespace pc

#endif
