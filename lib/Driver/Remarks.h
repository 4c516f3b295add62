//===- Remarks.h - Remarks about a plan for users -----------------------------------------------===//
// Input: a report and its plan. Result: texts for the terminal and for the report, such as a warning that memory will
// not suffice.
//===--------------------------------------------------------------------------------------------===//
#ifndef PC_LIB_DRIVER_REMARKS_H
#define PC_LIB_DRIVER_REMARKS_H

#include "pc/Cost/Machine.h"
#include "pc/Plan/Plan.h"
#include "llvm/Support/JSON.h"

namespace pc {

/// Remarks about ZeRO-2 and 3 with a pipeline, each of one or two sentences. `report` is the result of buildReport.
llvm::json::Array remarksOn(const llvm::json::Value &report, const Plan &plan);

/// A warning that a rank's `bytes` exceed the memory of its device on `machine`, with advice; empty if they do not.
std::string memoryWarning(int64_t bytes, const MachineModel &machine);
/// A warning that the `bytes` that a rank keeps on its host exceed the host's memory per device; empty if they do not.
std::string hostWarning(int64_t bytes, const MachineModel &machine);

} // namespace pc

#endif
