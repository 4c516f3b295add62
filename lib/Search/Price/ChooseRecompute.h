//===- ChooseRecompute.h - The cheapest recomputation that fits a memory limit -------------===//
// Input: a plan with --recompute=auto, a program and a limit of memory. Result: the mode of each layer that takes the
// fewest seconds and fits. Invariant: what fits is compiled up to its arenas, and never an estimate.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_PRICE_CHOOSERECOMPUTE_H
#define PC_LIB_SEARCH_PRICE_CHOOSERECOMPUTE_H

#include "pc/Driver/Compile.h"

namespace pc {

/// Replaces the plan's tactic `pc-recompute{mode=auto}`, if it has one, by the cheapest recomputation that fits the
/// memory limit; a cut of stages by cost then becomes one by hand. Returns, after an error, PCRT_RESOURCE if nothing
/// fits, PCRT_USAGE without a limit, or the status of the phase that failed.
pcrt_status chooseRecompute(mlir::ModuleOp model, CompileOptions &options);

} // namespace pc

#endif
