//===- Passes.td - Passes of the Memory room ---------------------------------------===//
#ifndef PC_MEMORY_PASSES_TD
#define PC_MEMORY_PASSES_TD

include "mlir/Pass/PassBase.td"

#endif
