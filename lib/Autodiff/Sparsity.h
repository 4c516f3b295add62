//===- Sparsity.h - Pruning of weights while they are trained ---------------------------------===//
// A group with `sparsity` keeps a part of the elements of its matrices. Each matrix has a state "mask" of zeros and
// ones. After the optimizer's update, elements whose mask is 0 become 0, so checkpoints also have the zeros. Masks are
// chosen again by magnitude every few steps, up to a last step, and then stay.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_AUTODIFF_SPARSITY_H
#define PC_LIB_AUTODIFF_SPARSITY_H

#include "pc/IR/PC.h"

namespace pc {

/// How the elements of a matrix are chosen. The numbers come from the settings of the group (`groupSettings`).
struct Sparsity {
  double share = 0; ///< the share of a row's elements that are 0 at the end; 0: the group has a pattern instead
  int64_t kept = 0; ///< with a pattern: the number of elements kept among `among` adjacent ones in a row
  int64_t among = 0;
  int64_t every = 1; ///< steps between two choices
  int64_t until = 0; ///< the last step, from 0, that may choose

  /// The settings of the parameter's group, if it has `sparsity`.
  static std::optional<Sparsity> of(ParameterOp parameter);
};

/// Masks the new value of a parameter and adds its states. Returns the value with which the parameter is updated. A
/// skipped step, whose coefficient is NaN, keeps everything. Fails with an error if the parameter's rows do not fit.
mlir::FailureOr<mlir::Value> prune(mlir::OpBuilder &builder, ParameterOp parameter, const Sparsity &sparsity,
                                   mlir::Value updated, mlir::Value coefficient);

} // namespace pc

#endif
