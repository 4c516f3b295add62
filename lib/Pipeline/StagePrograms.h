//===- StagePrograms.h - What stages do, read from their programs --------------------------===//
// Input: a staged module. Result: its tasks, messages and collectives as instructions, which the checks of the schedule
// library take. The reader shares no code with the writer of stages, so that a mistake of one shows.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PIPELINE_STAGEPROGRAMS_H
#define PC_LIB_PIPELINE_STAGEPROGRAMS_H

#include "pc/IR/Stages.h"
#include "pc/Pipeline/Program.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace pc::pipeline {

/// The programs of all stages as IR, and as the schedule library checks them. Nothing in it comes from the scheduler.
struct StagePrograms {
  mlir::StringAttr axis;
  std::vector<mlir::func::FuncOp> steps; ///< per stage
  Problem problem;                       ///< no times, no memory: which tasks there must be, and where
  Program program;
  VerifyOptions options;
  std::vector<std::vector<mlir::Operation *>> ops; ///< of every instruction

  /// Reads the nested modules of `module`. Fails after an error at an op that cannot be read or whose types do not
  /// agree.
  static mlir::FailureOr<StagePrograms> read(mlir::ModuleOp module);

  int stages() const { return static_cast<int>(steps.size()); }
  /// The stage at which a chunk's tasks run.
  int stageOf(int chunk) const { return problem.stageOf[chunk]; }
  bool isOverStages(MoveOpInterface move) const { return pc::isOverStages(move, axis); }
};

/// Counts the addends of sums over microbatches, chunks and stages. Fails after an error if a task works on another
/// microbatch than its own, or if the optimizer or an output reads a sum that lacks an addend or has one twice.
/// `stages` have passed the other checks: nothing waits forever, messages match.
mlir::LogicalResult checkSums(const StagePrograms &stages);

} // namespace pc::pipeline

#endif
