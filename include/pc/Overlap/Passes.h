//===- Passes.h - Passes of the Overlap room ----------------------------------------===//
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
