//===- Sharing.h - When a result may be written over an operand ------------------------===//
// This file is a contract: memory planning may let an operand and a result share memory if these functions allow it,
// and kernels must then be correct in place.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_SHARING_H
#define PC_IR_SHARING_H

#include "pc/IR/PC.h"

namespace pc {

/// Whether the kernel of `op` may write result `result` in place over operand `operand`. Then each element of the
/// operand is read only for the same element of the result, before that one is written. True for
/// * pointwise ops, and einsums without summation or broadcast, for an operand with the dims of the result in order;
/// * adamw and sgd: any tensor operand of the parameter's shape;
/// * all_reduce and mask; insert, for the tensor that it inserts into;
/// * kernels (`pc.fusion`) of such ops and of broadcasts, if operand and result have the shape of the kernel's loop;
/// * kernels of AdamW with states in codes (`asCodedAdamW`): they read a whole block before they write it;
/// * kernels that add the gradient of an embedding (`asTableSum`) or a matrix product to a tensor, for that tensor.
///
/// Operand and result must always have the same shape and the same width of elements. If this is true, generated
/// kernels must be correct when both are the same buffer.
bool mayShareHome(mlir::Operation *op, unsigned operand, unsigned result);

/// A kernel that adds the gradient of an embedding, row by row, to `base`, an argument of its body.
struct TableSum {
  EmbeddingGradOp gradient;
  mlir::BlockArgument base;
};
/// Returns `fusion` as such a kernel, or std::nullopt.
std::optional<TableSum> asTableSum(FusionOp fusion);

} // namespace pc

#endif
