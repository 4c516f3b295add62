//===- Passes.td - Passes of the Autodiff room ---------------------------------------===//
#ifndef PC_AUTODIFF_PASSES_TD
#define PC_AUTODIFF_PASSES_TD

include "mlir/Pass/PassBase.td"

#endif
