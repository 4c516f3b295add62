//===- Windows.h - Moves that become steps round a ring -------------------------------===//
// Collective matmul, and ring attention: the gathered tensor never exists as a whole; its blocks come round the ring by
// `pc.permute`s while the ranks work on those that have arrived. Works on local programs, so it does not touch
// placements, and erasure is not concerned.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_OVERLAP_WINDOWS_H
#define PC_LIB_OVERLAP_WINDOWS_H

#include "pc/IR/PC.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace pc {

/// Attention to gathered keys and values becomes attention to one block after another; its gradient likewise.
llvm::LogicalResult windowAttention(mlir::func::FuncOp function, MeshAttr mesh);

/// A gather or reduce_scatter over a windowed axis that stays one, although a matrix product reads or makes its value.
struct StayingMove {
  MoveOpInterface move;
  mlir::Operation *product; ///< the op that prevents a window
  llvm::StringRef why;      ///< what `product` does; the end of a sentence that begins with its name
};

/// Rewrites gathers that feed matrix products, and reduce_scatters of their results, over any of `axes` (or a part of
/// one that was split in two: "tp.0"). Adds the axes of every move that it rewrites to `windowed`. Calls `stays`,
/// before anything is written, for every other such move.
void windowProducts(mlir::Block &block, MeshAttr mesh, llvm::ArrayRef<std::string> axes,
                    llvm::SmallVectorImpl<mlir::ArrayAttr> &windowed, llvm::function_ref<void(StayingMove)> stays);

/// Whether a sum over `axes` is computed from an addend that only one rank along them has: the gradient of a residual
/// after whose sum a norm is, that of keys that all ranks have, that of the loss of an uneven load of experts. Such
/// sums do not travel, since nothing would tell which rank's addends are in them.
bool hasLoneAddend(mlir::Value sum, mlir::ArrayAttr axes);

/// Whether `axis` is `name` or a part of it: "tp", "tp.0".
inline bool isAxisOf(mlir::StringAttr axis, llvm::StringRef name) {
  return axis.getValue() == name || (axis.getValue().starts_with(name) && axis.getValue()[name.size()] == '.');
}

/// The type of `type`'s shape in which partial results are summed: f32 for bf16, else `type` itself.
mlir::Type inF32(mlir::Type type);

} // namespace pc

#endif
