//===- Passes.h - Passes of the Localize room ----------------------------------------===//
#ifndef PC_LOCALIZE_PASSES_H
#define PC_LOCALIZE_PASSES_H

#include "mlir/Pass/Pass.h"
#include "pc/IR/PC.h"

namespace pc {
#define GEN_PASS_DECL
#include "pc/Localize/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "pc/Localize/Passes.h.inc"
} // namespace pc

#endif
