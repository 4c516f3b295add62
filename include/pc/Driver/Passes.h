//===- Passes.h - Passes of the Driver room -----------------------------------------===//
#ifndef PC_DRIVER_PASSES_H
#define PC_DRIVER_PASSES_H

#include "mlir/Pass/Pass.h"
#include "pc/IR/PC.h"

namespace pc {
#define GEN_PASS_DECL
#include "pc/Driver/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "pc/Driver/Passes.h.inc"
} // namespace pc

#endif
