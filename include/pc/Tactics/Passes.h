//===- Passes.h - Passes of the Tactics room -----------------------------------------===//
#ifndef PC_TACTICS_PASSES_H
#define PC_TACTICS_PASSES_H

#include "mlir/Pass/Pass.h"
#include "pc/IR/PC.h"

namespace pc {
#define GEN_PASS_DECL
#include "pc/Tactics/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "pc/Tactics/Passes.h.inc"
} // namespace pc

#endif
