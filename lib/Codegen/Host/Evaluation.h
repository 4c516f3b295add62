//===- Evaluation.h - The part of a training step that its loss needs ---------------------===//
// A program that trains can also evaluate. @pc_evaluate makes the calls of the step that the loss needs, in their
// order, on the same buffers, with dropouts that drop nothing. If the step is correct, so is @pc_evaluate: the same
// calls still write every value, to the same place, before it is read. The calls that are left out only wrote other
// values. The same holds for messages between stages. In a program that generates, @pc_evaluate is the step without the
// part for prompts.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_HOST_EVALUATION_H
#define PC_LIB_CODEGEN_HOST_EVALUATION_H

#include "pc/IR/PC.h"

#include "llvm/ADT/DenseSet.h"

#include <map>

namespace pc {

/// The ops of the stages' planned steps that the loss depends on. Calls of task functions have been inlined.
class Evaluation {
public:
  /// `programs` are the programs of all stages.
  explicit Evaluation(llvm::ArrayRef<mlir::ModuleOp> programs);

  bool needs(mlir::Operation *op) const { return ops.contains(op); }
  /// Whether the loss needs the sum over microbatches of this yielded value.
  bool needs(mlir::OpOperand &yielded) const { return sums.contains(&yielded); }
  /// Whether the loss needs move `i` of a start. If it does not need all moves of the start, blocking moves replace the
  /// start and its wait.
  bool needsMove(StartOp start, unsigned i) const { return moved.contains(&start->getOpOperand(i)); }
  bool needsAll(StartOp start) const;

private:
  /// The key of a message: the sending stage, the receiving stage, the flow and the number.
  using MessageKey = std::tuple<int64_t, int64_t, int64_t, int64_t>;

  /// Adds an op, the ops that compute its operands, and the sends that belong to its receives. So the set grows
  /// backwards from the loss.
  void add(mlir::Operation *op);
  void addValue(mlir::Value value);
  void addTasks(mlir::ModuleOp program);

  std::map<MessageKey, mlir::Operation *> sends;
  llvm::DenseSet<mlir::Operation *> ops;
  llvm::DenseSet<mlir::OpOperand *> sums, moved;
  llvm::SmallVector<mlir::Operation *> open; ///< ops whose operands have not been added yet
};

} // namespace pc

#endif
