//===- Evaluate.h - The meaning of every computing op ---------------------------------===//
// Plain loops in double precision, simple enough to be compared with the op descriptions by reading.
//===-----------------------------------------------------------------------------===//
#ifndef PC_REFERENCE_EVALUATE_H
#define PC_REFERENCE_EVALUATE_H

#include "pc/IR/PC.h"
#include "pc/Reference/Tensor.h"

namespace pc {

/// What the evaluation of an op depends on besides its operands.
struct EvaluateContext {
  /// The shapes of the results on this rank. (Types say the global shape in placed programs.)
  llvm::SmallVector<Shape, 3> shapes;
  /// The first global index of this rank's block of the dim that the op indexes: rows of a table, columns of logits.
  int64_t offset = 0;
  /// For the value whose elements the op drops (DrawnOpInterface): the first global index of this rank's block by dim,
  /// and the sizes of the whole value.
  Shape drawnStart, drawnSizes;
  /// Whether values of type bf16 are rounded. If so, attention of bf16 also rounds the weights and gradients of scores
  /// that it multiplies.
  bool rounds = false;
};

/// The results of `op` on one rank, or failure after an error at the op. `op` is no leaf, no move and has no region.
llvm::FailureOr<llvm::SmallVector<Tensor, 3>> evaluate(mlir::Operation *op, llvm::ArrayRef<const Tensor *> inputs,
                                                       const EvaluateContext &context);

} // namespace pc

#endif
