//===- WithoutDropping.h - Versions of ops that do not drop elements -----------------------===//
// An evaluation runs the calls of the step, but drops nothing.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_FUSE_WITHOUTDROPPING_H
#define PC_LIB_CODEGEN_FUSE_WITHOUTDROPPING_H

#include "pc/IR/PC.h"

namespace pc {

/// Whether `op`, or an op in its kernel, drops anything.
bool drops(mlir::Operation *op);
/// A copy of `op` that keeps the elements that `op` drops. It is not in a block.
mlir::OwningOpRef<mlir::Operation *> withoutDropping(mlir::Operation *op);

} // namespace pc

#endif
