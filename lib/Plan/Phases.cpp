//===- Phases.cpp - The phases of the compiler ------------------------------------------===//
// Each phase has a name, a description and an order. All other code reads this table and has no other list of phases.
//===------------------------------------------------------------------------------------===//
#include "pc/Plan/Phases.h"

/// The only list of phases. Its descriptions appear in --help.
llvm::ArrayRef<pc::PhaseInfo> pc::phases() {
  static const PhaseInfo table[] = {
      {Phase::Model, "model", "the forward pass and loss, for one device"},
      {Phase::Step, "step", "one training step: backward, microbatches, clipping, optimizer"},
      {Phase::Placed, "placed", "every type has a placement, and moves are explicit"},
      {Phase::Staged, "staged", "with a pipeline, one program per stage with tasks in the order of the schedule"},
      {Phase::Local, "local", "one rank's program, with local shapes"},
      {Phase::Scheduled, "scheduled", "fused kernels and collectives in issue order"},
      {Phase::Planned, "planned", "every buffer has an offset in the arena"},
      {Phase::Kernels, "kernels", "the host program and kernels in MLIR's own dialects"},
      {Phase::Exe, "exe", "an executable"},
  };
  return table;
}
