//===- Passes.td - Passes of the Codegen room ---------------------------------------===//
#ifndef PC_CODEGEN_PASSES_TD
#define PC_CODEGEN_PASSES_TD

include "mlir/Pass/PassBase.td"

#endif
