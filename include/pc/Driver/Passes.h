//===- Passes.h - Passes of the Driver room -----------------------------------------===//
// Generated from Passes.td: the pass that signs a step program. Its file defines GEN_PASS_DEF_<PASS> before it includes
// this header.
//===-----------------------------------------------------------------------------===//
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
