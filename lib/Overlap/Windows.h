//===- Windows.h - Moves that become steps round a ring -------------------------------===//
// What a gather would make never exists as a whole: its blocks come round the ring by `pc.permute`s while the ranks
// work on those that are there already. Local programs only, so placements, types and erasure are what they were.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_OVERLAP_WINDOWS_H
#define PC_LIB_OVERLAP_WINDOWS_H

#include "pc/IR/PC.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace pc {

/// Attention to keys and values that are gathered becomes attention to one block after another, its gradient too.
llvm::LogicalResult windowAttention(mlir::func::FuncOp function, MeshAttr mesh);

/// A move that meets a product, or what it moves does, and yet stays: what `product` does that needs it whole.
struct StayingMove {
  MoveOpInterface move;
  mlir::Operation *product;
  llvm::StringRef why;
};

/// Gathers that feed matrix products, and reduce_scatters of their results, over any of `axes` (or what is left of an
/// axis that was split in two: "tp.0"). Adds the axes of every move that became steps to `windowed` and calls `stays`,
/// before anything is written, for every other one that meets a product.
void windowProducts(mlir::Block &block, MeshAttr mesh, llvm::ArrayRef<std::string> axes,
                    llvm::SmallVectorImpl<mlir::ArrayAttr> &windowed, llvm::function_ref<void(StayingMove)> stays);

/// Whether `axis` is `name` or a part of it: "tp", "tp.0".
inline bool isAxisOf(mlir::StringAttr axis, llvm::StringRef name) {
  return axis.getValue() == name || (axis.getValue().starts_with(name) && axis.getValue()[name.size()] == '.');
}

/// Partial results are summed in f32.
mlir::Type inF32(mlir::Type type);

} // namespace pc

#endif
