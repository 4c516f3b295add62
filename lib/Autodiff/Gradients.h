//===- Gradients.h - One gradient rule per op -----------------------------------------===//
// Input: a block of forward ops and the set of live values. Result: ops that compute gradients, at the builder's
// insertion point, and a map from values to their gradients. Gradients of several readers are summed in the order of
// the calls.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_AUTODIFF_GRADIENTS_H
#define PC_LIB_AUTODIFF_GRADIENTS_H

#include "mlir/IR/Builders.h"
#include "pc/IR/PC.h"

namespace pc {

/// Reverse mode over a straight-line block: call `differentiate` on its ops from last to first.
class Gradients {
public:
  /// `live` contains the values that depend on a parameter; other values get no gradient.
  Gradients(mlir::OpBuilder &builder, const llvm::DenseSet<mlir::Value> &live) : builder(builder), live(live) {}

  /// Adds `gradient` to the gradient of `value`, if that is live.
  void add(mlir::Value value, mlir::Value gradient);
  /// The gradient of `value`, or null if nothing reached it.
  mlir::Value of(mlir::Value value) const { return gradients.lookup(value); }
  /// Emits the gradient of `op` if its result has one. Fails with an error at an op that has no rule.
  llvm::LogicalResult differentiate(mlir::Operation *op);
  bool isLive(mlir::Value value) const { return live.contains(value); }

private:
  struct Rules; // one per op

  /// The rule of a split, whose results all have gradients.
  llvm::LogicalResult join(SplitQkvOp split);

  mlir::OpBuilder &builder;
  const llvm::DenseSet<mlir::Value> &live;
  llvm::DenseMap<mlir::Value, mlir::Value> gradients;
};

/// Whether everything that depends on `value` is a choice, so that it has no gradient.
bool isOfChoices(mlir::Value value);

/// "x0 x1 ..." for the dims of a tensor.
std::string dimLetters(mlir::Value value);

} // namespace pc

#endif
