//===- Passes.td - Passes of the Localize room ---------------------------------------===//
#ifndef PC_LOCALIZE_PASSES_TD
#define PC_LOCALIZE_PASSES_TD

include "mlir/Pass/PassBase.td"

#endif
