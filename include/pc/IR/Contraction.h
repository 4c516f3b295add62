//===- Contraction.h - An einsum as a product of matrices ---------------------------------===//
// Input: an einsum or its factor rule. Result: which factors are batch, rows, columns and sum of a matrix product.
// Codegen and Cost use it to decide whether an einsum is a matrix product.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_CONTRACTION_H
#define PC_IR_CONTRACTION_H

#include "pc/IR/PC.h"

namespace pc {

/// The factors of an einsum (by their numbers in its rule), grouped by where they occur. With two operands a and b, the
/// einsum is the product c[batch, m, n] = sum over k of a[batch, m, k] b[batch, k, n]. Groups may be empty. Without
/// exactly two operands, all groups except `summed` are empty.
struct Contraction {
  /// All groups are empty if the spec does not fit the op.
  explicit Contraction(EinsumOp op) : Contraction(op.getFactorRule()) {}
  explicit Contraction(const FactorRule &rule);

  llvm::SmallVector<int> batch; ///< factors of a, b and c
  llvm::SmallVector<int> m;     ///< factors of a and c
  llvm::SmallVector<int> n;     ///< factors of b and c
  llvm::SmallVector<int> k;     ///< factors of a and b, summed
  llvm::SmallVector<int> alone; ///< factors of only one of a, b and c, which are summed or repeated separately
  /// The factors that are not in the result, in the order of the operands. There may be any number of operands.
  llvm::SmallVector<int> summed;

  /// Whether matrices, or a matrix and a vector, are multiplied.
  bool isMatrixProduct() const { return !k.empty() && (!m.empty() || !n.empty()); }
};

/// Whether the einsum only changes the order of dims ("b f -> f b"), with one operand.
bool isTransposition(EinsumOp op);

/// Whether the einsum sums its operands' product over leading dims only ("b s f -> f").
bool sumsLeadingDims(EinsumOp op);

} // namespace pc

#endif
