//===- ChoosePlan.h - The plan that --auto means ---------------------------------------------===//
#ifndef PC_DRIVER_CHOOSEPLAN_H
#define PC_DRIVER_CHOOSEPLAN_H

#include "pc/Driver/Compile.h"

namespace pc {

/// Where a plan is searched, puts it into `options` and says on standard error what was found. Errors are emitted.
pcrt_status choosePlan(mlir::ModuleOp model, CompileOptions &options);

} // namespace pc

#endif
