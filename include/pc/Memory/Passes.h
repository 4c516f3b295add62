//===- Passes.h - Passes of the Memory room ----------------------------------------===//
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
