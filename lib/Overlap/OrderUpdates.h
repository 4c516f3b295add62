//===- OrderUpdates.h - The order of updates whose leaves are carried ---------------------===//
// An update frees a gradient, and it needs memory for states that are carried in. If small parameters are updated
// first, enough gradients are gone when the states of the largest ones arrive.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_OVERLAP_ORDERUPDATES_H
#define PC_LIB_OVERLAP_ORDERUPDATES_H

#include "mlir/IR/Operation.h"

namespace pc {

/// Sorts the updates after `begin`, the op with which the optimizer begins, by the size of their parameters, smallest
/// first. Each takes along what only it and later updates need. Ops with effects, and those for which `isFixed` holds,
/// come before all updates and keep their order.
void orderUpdates(mlir::Operation *begin, llvm::function_ref<bool(mlir::Operation *)> isFixed);

} // namespace pc

#endif
