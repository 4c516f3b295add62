//===- ChooseRecompute.h - The cheapest recomputation that fits a memory limit -------------===//
// Input: a plan with --recompute=auto, a program and a memory limit. Result: a mode for each layer. With these modes
// the step fits and takes the fewest seconds. Invariant: a plan that fits was compiled up to its arenas, so its size is
// not an estimate.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_PRICE_CHOOSERECOMPUTE_H
#define PC_LIB_SEARCH_PRICE_CHOOSERECOMPUTE_H

#include "pc/Driver/Compile.h"

namespace pc {

/// Replaces the plan's tactic `pc-recompute{mode=auto}`, if it has one, by the cheapest recomputation that fits the
/// memory limit. Replaces `stages=cost` by a list of layers. After an error, returns PCRT_RESOURCE if nothing fits,
/// PCRT_USAGE if there is no memory limit, or the status of the phase that failed.
pcrt_status chooseRecompute(mlir::ModuleOp model, CompileOptions &options);

} // namespace pc

#endif
