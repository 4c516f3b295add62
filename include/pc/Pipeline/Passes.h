//===- Passes.h - Passes of the Pipeline room ----------------------------------------===//
// Generated from Passes.td: the passes that cut a step into stages and check them. A pass's file defines
// GEN_PASS_DEF_<PASS> before it includes this header.
//===-----------------------------------------------------------------------------===//
#ifndef PC_PIPELINE_PASSES_H
#define PC_PIPELINE_PASSES_H

#include "mlir/Pass/Pass.h"
#include "pc/IR/PC.h"

namespace pc {
#define GEN_PASS_DECL
#include "pc/Pipeline/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "pc/Pipeline/Passes.h.inc"
} // namespace pc

#endif
