//===- Passes.td - Passes of the Cost room ---------------------------------------===//
#ifndef PC_COST_PASSES_TD
#define PC_COST_PASSES_TD

include "mlir/Pass/PassBase.td"

#endif
