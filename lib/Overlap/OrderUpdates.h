//===- OrderUpdates.h - The order of updates whose leaves are carried ---------------------===//
// An update frees a gradient, but needs memory for states that are carried in. If small parameters are updated first,
// enough gradients are freed when the states of the largest parameters arrive.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_OVERLAP_ORDERUPDATES_H
#define PC_LIB_OVERLAP_ORDERUPDATES_H

#include "mlir/IR/Operation.h"

namespace pc {

/// Sorts the updates after `begin`, the op with which the optimizer begins, by the size of their parameters, smallest
/// first. An op that only one update and later ones need moves with that update. Ops with effects, and those for which
/// `isFixed` holds, come before all updates and keep their order.
void orderUpdates(mlir::Operation *begin, llvm::function_ref<bool(mlir::Operation *)> isFixed);

} // namespace pc

#endif
