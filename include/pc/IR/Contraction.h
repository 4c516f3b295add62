//===- Contraction.h - An einsum as a product of matrices ---------------------------------===//
// Input: an einsum or its factor rule. Result: which factors are batch, rows, columns and sum of a matrix product.
// Codegen and Cost both decide by it whether an einsum is one.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_CONTRACTION_H
#define PC_IR_CONTRACTION_H

#include "pc/IR/PC.h"

namespace pc {

/// The factors of an einsum (by their numbers in its rule) by where they occur. Of two operands a and b it is the
/// product c[batch, m, n] = sum over k of a[batch, m, k] b[batch, k, n]; groups may be empty, and other operands have
/// none.
struct Contraction {
  /// All groups are empty where a spec does not fit its op.
  explicit Contraction(EinsumOp op) : Contraction(op.getFactorRule()) {}
  explicit Contraction(const FactorRule &rule);

  llvm::SmallVector<int> batch; ///< of a, b and c
  llvm::SmallVector<int> m;     ///< of a and c
  llvm::SmallVector<int> n;     ///< of b and c
  llvm::SmallVector<int> k;     ///< of a and b, summed
  llvm::SmallVector<int> alone; ///< of one of the three: summed or repeated by itself
  /// Factors that the result lacks, of any number of operands, in the order of the operands.
  llvm::SmallVector<int> summed;

  /// Whether matrices, or a matrix and a vector, are multiplied.
  bool isMatrixProduct() const { return !k.empty() && (!m.empty() || !n.empty()); }
};

/// Whether the einsum sums its operands' product over leading dims only ("b s f -> f").
bool sumsLeadingDims(EinsumOp op);

} // namespace pc

#endif
