//===- Evaluation.h - The part of a training step that its loss needs ---------------------===//
// A program that trains can also evaluate: @pc_evaluate makes those calls of the step that the loss needs, in their
// order, on the same buffers, with dropouts that drop nothing. It is right where the step is. Every value is still
// written before it is read and where it is read, by the same calls, and what is left out wrote other values: it could
// only have overwritten more. The same holds for messages between stages.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_HOST_EVALUATION_H
#define PC_LIB_CODEGEN_HOST_EVALUATION_H

#include "pc/IR/PC.h"

#include "llvm/ADT/DenseSet.h"

#include <map>

namespace pc {

/// The ops of planned steps that their loss needs. Calls of task functions have been inlined.
class Evaluation {
public:
  /// `programs`: the programs of all stages.
  explicit Evaluation(llvm::ArrayRef<mlir::ModuleOp> programs);

  bool needs(mlir::Operation *op) const { return ops.contains(op); }
  /// Whether it needs the sum over microbatches of what is yielded there.
  bool needs(mlir::OpOperand &yielded) const { return sums.contains(&yielded); }
  /// Which moves of a start it needs. Where that is not all of them, they are made one by one instead, and nothing is
  /// waited for.
  bool needsMove(StartOp start, unsigned i) const { return moved.contains(&start->getOpOperand(i)); }
  bool needsAll(StartOp start) const;

private:
  /// A message: from a stage, to a stage, flow, number.
  using MessageKey = std::tuple<int64_t, int64_t, int64_t, int64_t>;

  /// The set grows from the loss backwards: an op, the ops that make its operands, and the sends of its receives.
  void add(mlir::Operation *op);
  void addValue(mlir::Value value);
  void addTasks(mlir::ModuleOp program);

  std::map<MessageKey, mlir::Operation *> sends;
  llvm::DenseSet<mlir::Operation *> ops;
  llvm::DenseSet<mlir::OpOperand *> sums, moved;
  llvm::SmallVector<mlir::Operation *> open; ///< whose operands have not been added
};

} // namespace pc

#endif
