//===- Sharing.h - When a result may be written over an operand ------------------------===//
#ifndef PC_IR_SHARING_H
#define PC_IR_SHARING_H

#include "pc/IR/PC.h"

namespace pc {

/// Whether the kernel of `op` may write result `result` over operand `operand`, that is: every element of the operand
/// is read for the same element of the result only, and before that is written. True for
/// * pointwise ops, and einsums without summation or broadcast, for an operand that has the dims of the result, in that
/// order;
/// * adamw and sgd: any tensor operand of the parameter's shape;
/// * all_reduce and mask; insert, for what it inserts into;
/// * kernels (`pc.fusion`) of such ops and of broadcasts, where the operand and the result have the shape of the whole
/// kernel;
/// * what a kernel adds the gradient of an embedding (`asTableSum`) or a matrix product to.
///
/// Shape and width of the element type are always the same. Generated kernels must be right when this says so and both
/// are one buffer.
bool mayShareHome(mlir::Operation *op, unsigned operand, unsigned result);

/// A kernel that adds the gradient of an embedding to `base`, an argument of its body, row by row: in place where both
/// are one buffer.
struct TableSum {
  EmbeddingGradOp gradient;
  mlir::BlockArgument base;
};
/// `fusion` as such a kernel, if it is one.
std::optional<TableSum> asTableSum(FusionOp fusion);

} // namespace pc

#endif
