//===- Windows.h - Replaces moves by steps around a ring ------------------------------===//
// Declares collective matmul and ring attention. The gathered tensor never exists as a whole: `pc.permute`s send its
// blocks around the ring while the ranks work on the blocks that have arrived. The rewrites work on local programs, so
// they do not affect placements or erasure.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_OVERLAP_WINDOWS_H
#define PC_LIB_OVERLAP_WINDOWS_H

#include "pc/IR/Calls.h"

namespace pc {

/// Replaces attention to gathered keys and values by attention to one block after another. Does the same for its
/// gradient.
llvm::LogicalResult windowAttention(mlir::func::FuncOp function, MeshAttr mesh);

/// A gather or reduce_scatter over a windowed axis that is not rewritten. A matrix product reads the result of the
/// gather, or computes the operand of the reduce_scatter.
struct StayingMove {
  MoveOpInterface move;
  mlir::Operation *product; ///< the op that prevents a window
  llvm::StringRef why;      ///< the reason, as the end of a sentence that begins with the name of `product`
};

/// Rewrites gathers that feed matrix products, and reduce_scatters of the products' results, over any of `axes` or a
/// part of one that was split in two ("tp.0"), in the functions of `module` and their accumulations. Adds the axes of
/// every rewritten move to `windowed`. Calls `stays`, before anything is written, for every such move that is not
/// rewritten.
void windowProducts(mlir::ModuleOp module, MeshAttr mesh, llvm::ArrayRef<std::string> axes,
                    llvm::SmallVectorImpl<mlir::ArrayAttr> &windowed, llvm::function_ref<void(StayingMove)> stays);

/// Where values come from, also those that a task's function gets or returns. The program must not change meanwhile.
class Origins {
public:
  explicit Origins(mlir::ModuleOp module);
  /// Calls `f` for the values from which `value` is computed or copied.
  void forEach(mlir::Value value, llvm::function_ref<void(mlir::Value)> f);

private:
  TaskFunctions functions;
  llvm::DenseMap<mlir::Block *, llvm::SmallVector<CallOp>> calls; ///< of functions, by their bodies
};

/// Whether a sum over `axes` contains an addend that only one rank along them has. Examples are gradients of a residual
/// whose sum is followed by a norm, of keys that all ranks have, and of the loss of an uneven load of experts. Such
/// sums are not passed around the ring, because the proof could not tell which ranks' addends they contain.
bool hasLoneAddend(mlir::Value sum, mlir::ArrayAttr axes, Origins &origins);

/// Whether `axis` is `name` or a part of it: "tp", "tp.0".
inline bool isAxisOf(mlir::StringAttr axis, llvm::StringRef name) {
  return axis.getValue() == name || (axis.getValue().starts_with(name) && axis.getValue()[name.size()] == '.');
}

/// The type in which partial results of `type` are summed: f32 for bf16, otherwise `type` itself.
mlir::Type inF32(mlir::Type type);

} // namespace pc

#endif
