//===- CheckInputs.h - Checks the inputs and frozen leaves of a model -----------------------===//
// pc-differentiate calls these checks before it changes a model, so that it can rely on sizes and indices.
//===----------------------------------------------------------------------------------------===//
#ifndef PC_LIB_AUTODIFF_CHECKINPUTS_H
#define PC_LIB_AUTODIFF_CHECKINPUTS_H

#include "pc/IR/PC.h"

namespace pc {

/// Returns the batch of the inputs of `model`. Fails with a located error if there is none, if inputs by name occur
/// together with tokens or share a name, if a size differs from the program's, or if an index may be out of bounds.
llvm::FailureOr<int64_t> checkInputs(mlir::func::FuncOp model);

/// Fails with a located error at a frozen parameter that no output depends on: a stage would not keep it.
llvm::LogicalResult checkFrozen(mlir::func::FuncOp model);

} // namespace pc

#endif
