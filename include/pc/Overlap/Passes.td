//===- Passes.td - Passes of the Overlap room ---------------------------------------===//
#ifndef PC_OVERLAP_PASSES_TD
#define PC_OVERLAP_PASSES_TD

include "mlir/Pass/PassBase.td"

#endif
