//===- ChoosePlan.h - The plan that --auto means ---------------------------------------------===//
#ifndef PC_DRIVER_CHOOSEPLAN_H
#define PC_DRIVER_CHOOSEPLAN_H

#include "pc/Cost/Machine.h"
#include "pc/Driver/Compile.h"
#include "pc/Search/Search.h"

#include "llvm/Support/JSON.h"

namespace pc {

/// Where a plan is searched, for `machine`, puts it into `options`, says on standard error what was found (unless the
/// search is quiet), and puts what the report says of it into `found`. Errors are emitted.
pcrt_status choosePlan(mlir::ModuleOp model, CompileOptions &options, const MachineModel &machine,
                       std::optional<llvm::json::Object> &found);

/// Where a plan was searched: comments of its file by which the search can be repeated, as the machine's figures.
std::string howItWasFound(const CompileOptions &options, const MachineModel &machine);

/// What the step of `model` does on one device, in the precision that the search's flags say. Errors are emitted.
pcrt_status readWork(mlir::ModuleOp model, const CompileOptions &options, StepWork &work);

} // namespace pc

#endif
