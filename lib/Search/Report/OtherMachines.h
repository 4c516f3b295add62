//===- OtherMachines.h - A plan on machines with one figure changed ------------------------===//
// Input: a machine, and plans. Result: machines with one figure halved or doubled, and the seconds of the plans on
// them. Invariant: a plan's program is the same on all of them, so it is compiled once.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_REPORT_OTHERMACHINES_H
#define PC_LIB_SEARCH_REPORT_OTHERMACHINES_H

#include "../Space/FewLayers.h"
#include "pc/Cost/Machine.h"
#include "pc/Driver/Compile.h"

namespace pc {

/// A machine that differs from another one in one figure, by the factor `times`.
struct OtherMachine {
  llvm::StringRef figure; ///< "products", "node", "network" or "memory"
  llvm::StringRef words;  ///< "links within a node"
  double times;
  MachineModel machine;
};

/// Returns machines with one figure halved or doubled, for each figure that matters to `ranks` ranks.
std::vector<OtherMachine> otherMachines(const MachineModel &machine, int64_t ranks);

/// Returns the seconds of a step on each machine, or an empty list if the plan is refused. If `few` is not null, the
/// plan is composed from programs of few layers, which are compiled once. If `callsTasks` is true, the whole program's
/// tasks are functions.
std::vector<double> secondsOn(llvm::ArrayRef<MachineModel> machines, mlir::ModuleOp model, const FewLayers *few,
                              const CompileOptions &options, const Plan &plan, bool callsTasks);

} // namespace pc

#endif
