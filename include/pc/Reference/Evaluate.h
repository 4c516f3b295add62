//===- Evaluate.h - The meaning of every computing op ---------------------------------===//
// Plain loops in double precision. They are simple enough to be compared with the descriptions of ops by reading.
//===-----------------------------------------------------------------------------===//
#ifndef PC_REFERENCE_EVALUATE_H
#define PC_REFERENCE_EVALUATE_H

#include "pc/IR/PC.h"
#include "pc/Reference/Tensor.h"

namespace pc {

/// The values, besides its operands, on which the evaluation of an op depends.
struct EvaluateContext {
  /// The shapes of the results on this rank. (Types say the global shape in placed programs.)
  llvm::SmallVector<Shape, 3> shapes;
  /// The first global index of this rank's block of the dim that the op indexes, such as the rows of a table or the
  /// columns of logits.
  int64_t offset = 0;
  /// For each dim of the value whose elements the op drops (DrawnOpInterface): the first global index of this rank's
  /// block, and the size of the whole value.
  Shape drawnStart, drawnSizes;
  /// Whether values of type bf16 are rounded. Attention in bf16 then also rounds the weights and the gradients of
  /// scores before it multiplies them.
  bool rounds = false;
  /// In exact arithmetic, the blocks of all addends that were encoded so far, without rounding; otherwise null.
  std::vector<std::vector<double>> *unrounded = nullptr;
};

/// Returns the results of `op` on one rank, or failure after an error at the op. `op` must not be a leaf or a move, and
/// must not have a region.
llvm::FailureOr<llvm::SmallVector<Tensor, 3>> evaluate(mlir::Operation *op, llvm::ArrayRef<const Tensor *> inputs,
                                                       const EvaluateContext &context);

} // namespace pc

#endif
