//===- Remarks.h - What a user should know of a plan --------------------------------------------===//
#ifndef PC_LIB_DRIVER_REMARKS_H
#define PC_LIB_DRIVER_REMARKS_H

#include "pc/Cost/Machine.h"
#include "pc/Plan/Plan.h"
#include "llvm/Support/JSON.h"

namespace pc {

/// A sentence or two each, of ZeRO-2 and 3 with a pipeline. `report` is buildReport's.
llvm::json::Array remarksOn(const llvm::json::Value &report, const Plan &plan);

/// That a rank's `bytes` are more than its device on `machine` has, and what helps; empty where they are not.
std::string memoryWarning(int64_t bytes, const MachineModel &machine);

} // namespace pc

#endif
