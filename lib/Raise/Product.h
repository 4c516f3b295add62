//===- Product.h - A value as a product of others ---------------------------------------------===//
// Einsums and scales that multiply, broadcast and transpose can write one product in many ways. Its common form is a
// number times values, each indexed by some dims of the result. `productOf` gives this form, and the patterns compare
// it.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_RAISE_PRODUCT_H
#define PC_LIB_RAISE_PRODUCT_H

#include "pc/IR/PC.h"

#include "mlir/IR/Builders.h"

namespace pc {

inline mlir::RankedTensorType typeOf(mlir::Value value) { return mlir::cast<mlir::RankedTensorType>(value.getType()); }

/// Returns the numbers 0, 1, ... of the dims of `value`.
llvm::SmallVector<int> dimsOf(mlir::Value value);

/// Returns `dims` without the element at index `at`.
llvm::SmallVector<int> without(llvm::ArrayRef<int> dims, int at);

/// The operands of a sum in both orders, because a pattern may match either of them.
inline std::array<std::pair<mlir::Value, mlir::Value>, 2> inBothOrders(AddOp sum) {
  return {{{sum.getA(), sum.getB()}, {sum.getB(), sum.getA()}}};
}

/// Replaces the uses of op's result. Returns true, so that a pattern can end with this call.
inline bool replaceResult(mlir::Operation *op, mlir::Value by) {
  op->getResult(0).replaceAllUsesWith(by);
  return true;
}

/// A factor of a product: `value`, whose dim d is indexed by dim dims[d] of the product.
struct Term {
  mlir::Value value;
  llvm::SmallVector<int> dims;

  /// Whether the value is indexed by `dim`.
  bool has(int dim) const { return llvm::is_contained(dims, dim); }
};

/// `scale` times the product of the terms. Dims from `rank` on are summed over.
struct ProductForm {
  double scale = 1;
  llvm::SmallVector<Term> terms;
  int rank = 0, dims = 0;

  int summed() const { return dims - rank; }
};

/// The dims of a term, for a product with a single sum. The sum is along dim `dim` of the term's value, and dim d of
/// the product's result is dim rows[d] of this value.
struct ReducedDim {
  int dim = 0;
  llvm::SmallVector<int> rows;
};

/// Returns std::nullopt unless the product sums over exactly one dim, `term` has this dim, and the term's other dims
/// are those of the result.
std::optional<ReducedDim> reducedDim(const ProductForm &product, const Term &term);

/// Returns `value` as a product. If it is not computed as a product, the value itself is the only term. Sums of the
/// outermost einsum are part of the product. A value that an inner einsum sums is one term, and so is `whole`.
ProductForm productOf(mlir::Value value, mlir::Value whole = {});

/// Returns the product of the operands of one einsum that sums. `value` and the operands may be scaled and transposed.
/// Other products are terms.
ProductForm contractionOf(mlir::Value value);

/// Returns the number that every element of `value` is, if `value` is a constant.
std::optional<double> constantOf(mlir::Value value);

/// Returns the dim of `value` along which its elements count 0, 1, 2, ..., or -1.
int countedDim(mlir::Value value);

/// Whether `value` is `scale` times the sum of `of` over dim `dim`, with the other dims in their order.
bool isSumOver(mlir::Value value, mlir::Value of, int dim, double scale);

/// If `value` is a number times a broadcast along `dim` of a value with the other dims in their order, returns that
/// value. Writes the number to `scale`; without `scale` it must be 1.
mlir::Value broadcastAlong(mlir::Value value, int dim, double *scale = nullptr);

/// Returns the term without the transpositions that come last in its computation.
Term straightened(Term term);

/// Builds `scale` times the product of `terms` along the dims `result`, whose sizes are `shape`. Other dims are summed
/// over. Without `shape`, a dim that no term has gets size 1. If the result is a single unchanged term, returns that
/// term. With `routed`, the last term is a mask with at most that many ones.
mlir::Value multiply(mlir::OpBuilder &builder, mlir::Location loc, llvm::ArrayRef<Term> terms,
                     llvm::ArrayRef<int> result, double scale = 1, llvm::ArrayRef<int64_t> shape = {},
                     mlir::IntegerAttr routed = {});

/// Builds `x` with dim `dim` moved to the end.
mlir::Value moveToEnd(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value x, int dim);

} // namespace pc

#endif
