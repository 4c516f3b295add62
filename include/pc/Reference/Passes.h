//===- Passes.h - Passes of the Reference room ----------------------------------------===//
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
