//===- ChooseOffload.h - The cheapest values to keep outside of the device ------------------===//
// Input: a plan with --offload=auto, or a search with this flag. Result: the kinds of values that leave the device.
// With this choice the step fits and takes the fewest seconds.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_PRICE_CHOOSEOFFLOAD_H
#define PC_LIB_SEARCH_PRICE_CHOOSEOFFLOAD_H

#include "pc/Driver/Compile.h"

namespace pc {

/// Completes everything of a plan except what leaves the device.
using CompletePlanWith = llvm::function_ref<pcrt_status(mlir::ModuleOp, Phase, CompileOptions &)>;

/// Calls `complete` for the plan once for each choice of --offload=auto that may be the cheapest, and keeps the
/// cheapest. Emits the errors of `complete`, or an error if no choice fits (PCRT_RESOURCE) or there is no memory limit
/// (PCRT_USAGE).
pcrt_status chooseOffload(mlir::ModuleOp model, Phase from, CompileOptions &options, CompletePlanWith complete);

} // namespace pc

#endif
