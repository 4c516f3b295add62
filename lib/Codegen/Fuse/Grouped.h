//===- Grouped.h - Routed einsums that work on rows -----------------------------------------===//
// A routed einsum touches only (token, expert) entries that the mask has. Stored by rows, these entries are the rows of
// a matrix, and the einsum is one call of the library instead of a dense product with zeros.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_FUSE_GROUPED_H
#define PC_LIB_CODEGEN_FUSE_GROUPED_H

#include "pc/IR/PC.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "pcrt/pcrt.h"

#include <optional>

namespace pc {

/// A routed einsum as a call of the library: its table entry without name and dtypes, and the operands that are a and
/// b.
struct Grouped {
  pcrt_gemm_desc desc{};
  unsigned a = 0, b = 0;
};

/// What `op` is, if it is routed, in f32 or bf16, and one of the kinds of pcrt_grouped; `byRows`: which values are
/// stored by rows.
std::optional<Grouped> asGrouped(EinsumOp op, llvm::function_ref<bool(mlir::Value)> byRows);
/// What `op` is, by its types.
std::optional<Grouped> asGrouped(EinsumOp op);

/// Makes of routed einsums of `block`, those that are `which`, a product and one by the mask: of the first operand that
/// has the dims of the mask and no others; else of the result, if that has them; else of the first operand that has
/// them.
void expandRouted(mlir::Block &block, llvm::function_ref<bool(EinsumOp)> which);

/// An op of values that are stored by rows, and not routed, as what its kernel does: the same op of tensors [rows,
/// ...], on arguments of a function.
struct RowForm {
  mlir::OwningOpRef<mlir::func::FuncOp> holder;
  mlir::Operation *op;
};
RowForm rowForm(mlir::Operation *op);

} // namespace pc

#endif
