//===- Phases.h - The phases of the compiler ------------------------------------------===//
// The order, names and one-line descriptions of the phases, from which `--to` and `--help` are made.
//===-----------------------------------------------------------------------------===//
#ifndef PC_PLAN_PHASES_H
#define PC_PLAN_PHASES_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

namespace pc {

enum class Phase { Model, Step, Placed, Staged, Local, Scheduled, Planned, Kernels, Exe };

struct PhaseInfo {
  Phase phase;
  llvm::StringRef name, description;
};

/// All phases in order.
llvm::ArrayRef<PhaseInfo> phases();

/// The name of a phase, such as "placed".
inline llvm::StringRef nameOf(Phase phase) { return phases()[static_cast<size_t>(phase)].name; }

} // namespace pc

#endif
