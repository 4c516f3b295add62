//===- Phases.cpp - The phases of the compiler ------------------------------------------===//
#include "pc/Plan/Phases.h"

llvm::ArrayRef<pc::PhaseInfo> pc::phases() {
  static const PhaseInfo table[] = {
      {Phase::Model, "model", "the forward pass and loss, as if for one device"},
      {Phase::Step, "step", "one training step: backward, microbatches, clipping, optimizer"},
      {Phase::Placed, "placed", "a placement in every type, explicit moves"},
      {Phase::Staged, "staged", "with a pipeline: one program per stage, tasks in the order of the schedule"},
      {Phase::Local, "local", "one rank's program, local shapes"},
      {Phase::Scheduled, "scheduled", "fused kernels, issue order of collectives"},
      {Phase::Planned, "planned", "every buffer has a home in the arena"},
      {Phase::Kernels, "kernels", "host program and kernels in upstream dialects"},
      {Phase::Exe, "exe", "an executable"},
  };
  return table;
}
