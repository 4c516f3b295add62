//===- Product.h - A value as a product of others ---------------------------------------------===//
// Einsums and scales that multiply, broadcast and transpose are one thing written in many ways: a number times values,
// each read along some dims of the result. `productOf` gives this form, and the patterns of the room compare it.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_RAISE_PRODUCT_H
#define PC_LIB_RAISE_PRODUCT_H

#include "pc/IR/PC.h"

#include "mlir/IR/Builders.h"

namespace pc {

/// A factor of a product: `value`, whose dim d is read along dim dims[d] of the product.
struct Term {
  mlir::Value value;
  llvm::SmallVector<int> dims;

  /// Whether the value is read along `dim`.
  bool has(int dim) const { return llvm::is_contained(dims, dim); }
};

/// scale times the product of the terms. Dims from `rank` on are summed over.
struct ProductForm {
  double scale = 1;
  llvm::SmallVector<Term> terms;
  int rank = 0, dims = 0;

  int summed() const { return dims - rank; }
};

/// The product that `value` is, at least of itself. Sums of the outermost einsum are part of it; a value that an inner
/// einsum sums is a term, and so is `whole`.
ProductForm productOf(mlir::Value value, mlir::Value whole = {});

/// The same, but of the operands of one einsum that sums, which may be scaled and transposed, as `value` may be.
ProductForm contractionOf(mlir::Value value);

/// The number that all elements of `value` are, if it is a constant.
std::optional<double> constantOf(mlir::Value value);

/// Whether `value` is the sum over dim `dim` of `of` times `scale`, along the other dims in their order.
bool isSumOver(mlir::Value value, mlir::Value of, int dim, double scale);

/// If `value` is a broadcast along `dim` of a value that has the other dims in their order, times a number: that value.
/// The number is written to `scale`, and must be 1 without it.
mlir::Value broadcastAlong(mlir::Value value, int dim, double *scale = nullptr);

/// scale times the product of `terms` along the dims `result`, without the others, which are summed over. A dim that no
/// term has gets size 1. A lone term that is this already is returned as it is.
mlir::Value multiply(mlir::OpBuilder &builder, mlir::Location loc, llvm::ArrayRef<Term> terms,
                     llvm::ArrayRef<int> result, double scale = 1);

/// x with dim `dim` last.
mlir::Value moveToEnd(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value x, int dim);

} // namespace pc

#endif
