//===- StagePrograms.h - Reads the instructions of stages from their programs --------------===//
// Input: a staged module. Result: its tasks, messages and collectives as instructions, the input of the schedule
// library's checks. The reader shares no code with the writer of stages, so that it detects mistakes of the writer.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PIPELINE_STAGEPROGRAMS_H
#define PC_LIB_PIPELINE_STAGEPROGRAMS_H

#include "pc/IR/Stages.h"
#include "pc/Pipeline/Program.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace pc::pipeline {

/// The programs of all stages as IR, and in the form that the schedule library checks. It contains no data from the
/// scheduler.
struct StagePrograms {
  mlir::StringAttr axis;
  std::vector<mlir::func::FuncOp> steps; ///< per stage
  Problem problem;                       ///< the required tasks and their stages, without times and memory
  Program program;
  VerifyOptions options;
  std::vector<std::vector<mlir::Operation *>> ops; ///< for each stage, the op of every instruction

  /// Reads the nested modules of `module`. Fails after an error at an op that cannot be read or whose types do not
  /// agree.
  static mlir::FailureOr<StagePrograms> read(mlir::ModuleOp module);

  int stages() const { return static_cast<int>(steps.size()); }
  /// The stage at which a chunk's tasks run.
  int stageOf(int chunk) const { return problem.stageOf[chunk]; }
  bool isOverStages(MoveOpInterface move) const { return pc::isOverStages(move, axis); }
};

/// Counts the addends of sums over microbatches, chunks and stages. Fails after an error if a task uses a value of
/// another microbatch, or if the optimizer or an output reads a sum in which an addend is missing or repeated. `stages`
/// must have passed the other checks: no deadlocks, and matching messages.
mlir::LogicalResult checkSums(const StagePrograms &stages);

} // namespace pc::pipeline

#endif
