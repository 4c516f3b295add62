//===- AnyOp.h - Whether some op of a program is of a kind ----------------------------------===//
// Walks that stop at the first op for which a condition holds.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_ANYOP_H
#define PC_IR_ANYOP_H

#include "pc/IR/PC.h"

namespace pc {

/// Whether `holds` is true for `root` or for an op inside it.
inline bool anyOp(mlir::Operation *root, llvm::function_ref<bool(mlir::Operation *)> holds) {
  return root->walk([&](mlir::Operation *op) { return mlir::WalkResult(mlir::failure(holds(op))); }).wasInterrupted();
}

/// Whether `holds` is true for the placement of some result of `root` or of an op inside it.
inline bool anyPlacement(mlir::Operation *root, llvm::function_ref<bool(PlaceAttr)> holds) {
  return anyOp(root, [&](mlir::Operation *op) {
    return llvm::any_of(op->getResultTypes(), [&](mlir::Type type) {
      PlaceAttr place = placement(type);
      return place && holds(place);
    });
  });
}

} // namespace pc

#endif
