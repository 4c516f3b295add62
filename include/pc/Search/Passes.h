//===- Passes.h - Passes of the Search room -----------------------------------------===//
#ifndef PC_SEARCH_PASSES_H
#define PC_SEARCH_PASSES_H

#include "mlir/Pass/Pass.h"
#include "pc/IR/PC.h"

namespace pc {
#define GEN_PASS_DECL
#include "pc/Search/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "pc/Search/Passes.h.inc"
} // namespace pc

#endif
