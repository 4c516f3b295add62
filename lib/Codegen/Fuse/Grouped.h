//===- Grouped.h - Routed einsums that work on rows -----------------------------------------===//
// A routed einsum uses only the (token, expert) entries of its mask. Stored by rows, these entries are the rows of a
// matrix, and the einsum is one call of the library instead of a dense product with zeros.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_FUSE_GROUPED_H
#define PC_LIB_CODEGEN_FUSE_GROUPED_H

#include "pc/IR/PC.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "pcrt/pcrt.h"

#include <optional>

namespace pc {

/// A routed einsum as a library call: its table entry without name and dtypes, and its operands a and b.
struct Grouped {
  pcrt_gemm_desc desc{};
  unsigned a = 0, b = 0;
};

/// Recognizes `op` if it is routed, has type f32 or bf16, and is of a kind in pcrt_grouped. `byRows` says whether a
/// value is stored by rows.
std::optional<Grouped> asGrouped(EinsumOp op, llvm::function_ref<bool(mlir::Value)> byRows);
/// Like the function above; the types of values say whether they are stored by rows.
std::optional<Grouped> asGrouped(EinsumOp op);

/// A fusion that is one routed product, whose matrix b has codes. The values here are those outside of the fusion.
struct CodedExperts {
  EinsumOp product;
  pcrt_gemm_desc desc;
  mlir::Value a, codes, scales, mask, c;
};
std::optional<CodedExperts> asCodedExperts(FusionOp fusion);

/// Returns the routed einsum that `op` is or contains, if isOnRows holds for `op`. Null for other ops.
EinsumOp routedOnRows(mlir::Operation *op);

/// Splits each routed einsum of `block` that `which` accepts into a product without the mask and a product with the
/// mask. The mask multiplies an operand that has exactly the dims of the mask. If there is none, it multiplies the
/// result if the result has these dims among others, and otherwise an operand that has them.
void expandRouted(mlir::Block &block, llvm::function_ref<bool(EinsumOp)> which);

/// An op on values that are stored by rows, but not a routed one, in the form of its kernel. This form is the same op
/// on tensors [rows, ...], which are arguments of a function.
struct RowForm {
  mlir::OwningOpRef<mlir::func::FuncOp> holder;
  mlir::Operation *op;
};
RowForm rowForm(mlir::Operation *op);

} // namespace pc

#endif
