//===- Passes.td - Passes of the Reference room ---------------------------------------===//
#ifndef PC_REFERENCE_PASSES_TD
#define PC_REFERENCE_PASSES_TD

include "mlir/Pass/PassBase.td"

#endif
