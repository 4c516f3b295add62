//===- ChooseRecompute.h - The cheapest recomputation that fits a memory limit -------------===//
#ifndef PC_LIB_SEARCH_PRICE_CHOOSERECOMPUTE_H
#define PC_LIB_SEARCH_PRICE_CHOOSERECOMPUTE_H

#include "pc/Driver/Compile.h"

namespace pc {

/// Puts what fits the limit on memory in the place of the plan's tactic `pc-recompute{mode=auto}`, where it has one;
/// a cut of stages by cost then becomes one by hand. After an error PCRT_RESOURCE where nothing fits, PCRT_USAGE
/// without a limit, or what a phase failed with.
pcrt_status chooseRecompute(mlir::ModuleOp model, CompileOptions &options);

} // namespace pc

#endif
