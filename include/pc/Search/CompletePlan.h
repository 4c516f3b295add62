//===- CompletePlan.h - The plan that flags leave open ----------------------------------------===//
// The entry of tools into the search: it stands between reading a program and compile(). Statuses are those of pcrt.h.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SEARCH_COMPLETEPLAN_H
#define PC_SEARCH_COMPLETEPLAN_H

#include "pc/Driver/Compile.h"
#include "pc/Search/Search.h"

namespace pc {

/// Completes the plan in `options` for `model`, a program of phase `from`: --auto searches it, --recompute=auto takes
/// the cheapest recomputation that fits the memory limit. Says on standard error what a search found (unless it is
/// quiet), and puts what reports and plan files say of it into `options`. Call it before compile(). Errors are emitted.
pcrt_status completePlan(mlir::ModuleOp model, Phase from, CompileOptions &options);

/// What the step of `model` does on one device, in the precision that the search's flags say. Errors are emitted.
pcrt_status readWork(mlir::ModuleOp model, const CompileOptions &options, StepWork &work);

} // namespace pc

#endif
