//===- CompletePlan.h - Completes a plan that flags leave open --------------------------------===//
// The entry point of tools into the search. Tools call it after reading a program and before compile(). Statuses are
// defined in pcrt.h.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SEARCH_COMPLETEPLAN_H
#define PC_SEARCH_COMPLETEPLAN_H

#include "pc/Driver/Compile.h"
#include "pc/Search/Search.h"

namespace pc {

/// Completes the plan in `options` for `model`, a program of phase `from`: --auto searches it, --recompute=auto chooses
/// the cheapest recomputation that fits the memory limit, and --offload=auto chooses which values leave the device.
/// Prints the result of a search on standard error (unless it is quiet), and stores the texts for reports and plan
/// files in `options`. Call it before compile(). Emits errors.
pcrt_status completePlan(mlir::ModuleOp model, Phase from, CompileOptions &options);

/// Computes the work of a step of `model` on one device, in the precision of the search's flags. Emits errors.
pcrt_status readWork(mlir::ModuleOp model, const CompileOptions &options, StepWork &work);

} // namespace pc

#endif
