//===- Passes.h - Passes of the Cost room ----------------------------------------===//
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
