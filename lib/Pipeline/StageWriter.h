//===- StageWriter.h - The program of one stage --------------------------------------------===//
// Writes a stage as a nested module: leaves, calls of its tasks in the order of the schedule with the sends and
// receives between them, and the work after the tasks. Each chunk sums its own gradients, so the order of additions
// does not depend on the schedule.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PIPELINE_STAGEWRITER_H
#define PC_LIB_PIPELINE_STAGEWRITER_H

#include "TaskWriter.h"
#include "pc/Pipeline/Program.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"

namespace pc::pipeline {

/// Numbers flows in the order of their first request.
class FlowNumbers {
public:
  /// `what` is F, B, or a letter for values that are exchanged after the tasks. `item` is the chunk or the yielded
  /// value. `index` is the number among several values.
  int of(int source, int destination, char what, int item, int index) {
    return numbers.try_emplace({source, destination, what, item, index}, numbers.size()).first->second;
  }

private:
  std::map<std::tuple<int, int, char, int, int>, int> numbers;
};

/// Writes a nested module: leaves, the ops that a caller adds, and messages between stages.
class StageModule {
public:
  /// Creates the module with an empty function. `whole` has the function `step` of all stages. A flow holds `slots`
  /// messages.
  StageModule(mlir::ModuleOp whole, mlir::func::FuncOp step, int stage, int slots);

  /// The clone of a leaf, or of a value that is computed only from leaves. It is created at its first use.
  mlir::Value outside(mlir::Value value);

  /// Writes one message, at the end of the program so far.
  mlir::Value receive(mlir::Location loc, mlir::Type type, int from, int flow, int message);
  void send(mlir::Location loc, mlir::Value value, int to, int flow, int message);

  /// Sorts leaves, ends the function and drops values without readers.
  void finish();

  int stage() const { return number; }
  mlir::ModuleOp getModule() const { return module; }
  mlir::OpBuilder builder;

protected:
  int number, slots;
  mlir::ModuleOp module;
  mlir::func::FuncOp function;

private:
  llvm::DenseMap<mlir::Value, mlir::Value> leaves;                     ///< outside values
  std::vector<std::pair<mlir::Operation *, mlir::Operation *>> header; ///< original, clone
};

/// Removes the step, because the stages now have all of its ops.
void keepStages(mlir::ModuleOp module, mlir::StringAttr axis);
/// Sets the key of each parameter to its index among all parameters, because a stage has only some of them.
void numberParameters(mlir::func::FuncOp step);

/// Writes the calls of the tasks of one stage in their order, and the ops that a caller adds after them.
class StageWriter : public StageModule {
public:
  /// Data that all stages share.
  struct Step {
    mlir::ModuleOp module;
    mlir::func::FuncOp function;
    AccumulateOp accumulate;
    const StepTasks &tasks;
    const Problem &problem;
    int slots;
    FlowNumbers &flows;
  };

  StageWriter(Step &step, int stage);

  void writeTasks(const std::vector<Instruction> &instructions);
  /// The sum over microbatches of the contributions of this stage's tasks to a yielded value; null if there are none.
  mlir::Value sum(unsigned yielded) const { return sums.lookup(yielded); }
  /// The number of ops that the step would have if the calls of tasks were inlined.
  int64_t numOps();

private:
  /// The value that tasks of `microbatch` read for `value` of the step.
  mlir::Value read(mlir::Value value, int microbatch);
  void writeTask(const Task &task);
  void receiveAll(const Task &message, int microbatch, int from);
  void sendAll(const Task &message, int to);

  Step &step;
  std::vector<llvm::DenseMap<mlir::Value, mlir::Value>> values; ///< for each microbatch, values of the body
  TaskWriter functions;
  std::map<std::pair<unsigned, int>, mlir::Value> sumsOfChunks; ///< for each (yielded value, chunk), the sum so far
  llvm::DenseMap<unsigned, mlir::Value> sums;
};

/// Writes the ops after the accumulation into all stages: reductions of gradients, the norm, the optimizer. Fails after
/// an error if an update or an output cannot be written on any stage.
llvm::LogicalResult writeUpdates(llvm::MutableArrayRef<StageWriter> stages, StageWriter::Step &step,
                                 mlir::StringAttr axis);

} // namespace pc::pipeline

#endif
