//===- MultiTensor.h - One kernel for many tensors, on a GPU ------------------------===//
// The optimizer and the norm of gradients work on every parameter, in one launch each. A constant table in the module
// has the first block and the arena offsets of each tensor.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_KERNELS_MULTITENSOR_H
#define PC_LIB_CODEGEN_KERNELS_MULTITENSOR_H

#include "../Emit/Simt.h"

namespace pc::kernels {

/// A list of f32 tensors of any sizes. For each tensor, it has the number of elements and the arena offsets of the
/// tensor's roles (parameter, gradient, ...).
struct TensorList {
  llvm::SmallVector<int64_t> elements;
  llvm::SmallVector<llvm::SmallVector<int64_t>> offsets;

  void add(int64_t count, llvm::SmallVector<int64_t> roles) {
    elements.push_back(count);
    offsets.push_back(std::move(roles));
  }
  /// Returns the number of blocks of a kernel over all elements.
  int64_t numBlocks() const;
};

/// Emits AdamW in place. The roles are parameter, gradient, first and second moment. `arena` is the address of the
/// arena.
void emitAdamW(SimtEmitter &e, mlir::Value arena, const TensorList &tensors, int64_t coefficient, int64_t hyper);
/// Emits SGD in place. The roles are parameter and gradient.
void emitSGD(SimtEmitter &e, mlir::Value arena, const TensorList &tensors, int64_t coefficient, int64_t hyper);
/// Rounds role 0, f32, to role 1, bf16.
void emitRounding(SimtEmitter &e, mlir::Value arena, const TensorList &tensors);
/// Stores the sum of squares of each block's part of role 0 at `partials`, as one f32 per block.
void emitSquares(SimtEmitter &e, mlir::Value arena, const TensorList &tensors, int64_t partials);
/// Stores the sum of the partials of each tensor's blocks at role 1.
void emitSquareTotals(SimtEmitter &e, mlir::Value arena, const TensorList &tensors, int64_t partials);

} // namespace pc::kernels
#endif
