//===- ChooseOffload.h - The cheapest values to keep outside of the device ------------------===//
// Input: a plan with --offload=auto, or a search with this flag. Result: the kinds of values that leave the device, so
// that the step fits and takes the fewest seconds.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_PRICE_CHOOSEOFFLOAD_H
#define PC_LIB_SEARCH_PRICE_CHOOSEOFFLOAD_H

#include "pc/Driver/Compile.h"

namespace pc {

/// Completes everything of a plan except what leaves the device.
using CompletePlanWith = llvm::function_ref<pcrt_status(mlir::ModuleOp, Phase, CompileOptions &)>;

/// Completes the plan by `complete`, with --offload=auto once for each choice that may be the cheapest. Emits the
/// errors of `complete`, or one if no choice fits (PCRT_RESOURCE) or there is no limit (PCRT_USAGE).
pcrt_status chooseOffload(mlir::ModuleOp model, Phase from, CompileOptions &options, CompletePlanWith complete);

} // namespace pc

#endif
