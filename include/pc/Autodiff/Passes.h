//===- Passes.h - Passes of the Autodiff room ----------------------------------------===//
// Generated from Passes.td: the passes that turn a model program into a step program. A pass's file defines
// GEN_PASS_DEF_<PASS> before it includes this header, and gets its base class; others get the structs of options and
// the registration.
//===-----------------------------------------------------------------------------===//
#ifndef PC_AUTODIFF_PASSES_H
#define PC_AUTODIFF_PASSES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"
#include "pc/IR/PC.h"

namespace pc {
#define GEN_PASS_DECL
#include "pc/Autodiff/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "pc/Autodiff/Passes.h.inc"
} // namespace pc

#endif
