//===- ChooseRecompute.h - The cheapest recomputation that fits a memory limit -------------===//
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
