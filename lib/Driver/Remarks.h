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

/// Warnings, with advice, that a rank's `bytes` exceed the memory of its device on `machine`, and that its `hostBytes`
/// exceed the memory of the host per device.
llvm::SmallVector<std::string, 2> memoryWarnings(int64_t bytes, int64_t hostBytes, const MachineModel &machine);

} // namespace pc

#endif
