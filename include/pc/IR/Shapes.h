//===- Shapes.h - The shapes of values ---------------------------------------------------------===//
// All values of a program are tensors with static sizes.
//===-------------------------------------------------------------------------------------------===//
#ifndef PC_IR_SHAPES_H
#define PC_IR_SHAPES_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Value.h"

namespace pc {
/// The sizes of the dims of `value`.
inline llvm::ArrayRef<int64_t> shapeOf(mlir::Value value) {
  return llvm::cast<mlir::RankedTensorType>(value.getType()).getShape();
}
} // namespace pc

#endif
