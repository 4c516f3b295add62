//===- Evaluate.h - The meaning of every computing op ---------------------------------===//
// Plain loops in double precision, written to be checked against the op descriptions by eye.
//===-----------------------------------------------------------------------------===//
#ifndef PC_REFERENCE_EVALUATE_H
#define PC_REFERENCE_EVALUATE_H

#include "pc/IR/PC.h"
#include "pc/Reference/Tensor.h"

namespace pc {

/// What an op needs to know beside its operands.
struct EvaluateContext {
  /// The shapes of the results on this rank. (Types say the global shape in placed programs.)
  llvm::SmallVector<Shape, 3> shapes;
  /// The first global index of this rank's block of the dim that the op indexes: rows of a table, columns of logits.
  int64_t offset = 0;
  /// Whether values of type bf16 are rounded: then attention of bf16 rounds what it multiplies inside, too.
  bool rounds = false;
};

/// The results of `op` (not a leaf, a move or a region) on one rank, or failure after an error at the op.
llvm::FailureOr<llvm::SmallVector<Tensor, 3>> evaluate(mlir::Operation *op, llvm::ArrayRef<const Tensor *> inputs,
                                                       const EvaluateContext &context);

} // namespace pc

#endif
