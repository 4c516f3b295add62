//===- TaskWriter.h - Tasks of a stage as functions ----------------------------------------===//
// A task becomes a function that serves all microbatches of a chunk. Its arguments are values of leaves and of other
// tasks, and sums so far; its results are values that later tasks or stages read, and the new sums.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PIPELINE_TASKWRITER_H
#define PC_LIB_PIPELINE_TASKWRITER_H

#include "StepTasks.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/SetVector.h"

namespace pc::pipeline {

/// A task of a chunk, for any microbatch. Its values are values of the step: leaves, arguments of the accumulation's
/// body, and results of other tasks of the microbatch. Instead of a value, there may be the number of a yielded value,
/// which means the sum so far.
struct WrittenTask {
  mlir::func::FuncOp function; ///< null if the task has no ops
  /// An argument that a call of the function passes.
  struct Input {
    mlir::Value value;
    int yielded = -1; ///< the number of a sum, if there is no value
  };
  llvm::SmallVector<Input> inputs;                     ///< by argument
  llvm::SmallVector<std::pair<mlir::Value, int>> made; ///< values that others read, and result numbers
  llvm::SmallVector<std::pair<unsigned, int>> summed;  ///< sums with this task's addends, and their result numbers
};

/// Writes the functions of one stage, each at its first request.
class TaskWriter {
public:
  TaskWriter(mlir::ModuleOp module, AccumulateOp accumulate, const StepTasks &tasks);

  /// `hasSum` returns whether earlier microbatches of the chunk have computed a sum for a yielded value.
  const WrittenTask &get(TaskKind kind, int chunk, llvm::function_ref<bool(unsigned)> hasSum);

private:
  using Values = llvm::SmallSetVector<mlir::Value, 16>;
  /// The part of a task that a result of the step depends on.
  struct Live {
    llvm::SmallVector<mlir::Operation *> ops; ///< in program order
    Values reads;                             ///< values that other tasks of the chunk or other chunks compute
    Values made;                              ///< values that later tasks of the chunk or other chunks read
  };
  const Live &live(TaskKind kind, int chunk);
  WrittenTask write(TaskKind kind, int chunk, llvm::StringRef name, llvm::function_ref<bool(unsigned)> hasSum);

  mlir::ModuleOp module;
  AccumulateOp accumulate;
  const StepTasks &tasks;
  /// The addends, by the op that computes them.
  std::multimap<mlir::Operation *, std::pair<unsigned, const StepTasks::Addend *>> addends;
  std::map<std::pair<TaskKind, int>, llvm::SmallVector<unsigned>> yieldedBy; ///< sums that a task adds to, ascending
  std::map<std::pair<TaskKind, int>, Live> lives;
  std::map<std::tuple<TaskKind, int, std::vector<bool>>, WrittenTask> written;
};

} // namespace pc::pipeline

#endif
