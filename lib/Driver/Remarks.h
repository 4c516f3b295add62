//===- Remarks.h - What a user should know of a plan --------------------------------------------===//
#ifndef PC_LIB_DRIVER_REMARKS_H
#define PC_LIB_DRIVER_REMARKS_H

#include "pc/Driver/Plan.h"
#include "llvm/Support/JSON.h"

namespace pc {

/// A sentence or two each: today ZeRO-2 and 3 with a pipeline. `report` is buildReport's.
llvm::json::Array remarksOn(const llvm::json::Value &report, const Plan &plan);

} // namespace pc

#endif
