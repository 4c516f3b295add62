//===- MultiTensor.h - One kernel for many tensors, on a GPU ------------------------===//
// The optimizer and the gradient's norm touch every parameter. One launch each does them all: which block works on what
// stands in a constant table of the module, as offsets in the arena.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_KERNELS_MULTITENSOR_H
#define PC_LIB_CODEGEN_KERNELS_MULTITENSOR_H

#include "Simt.h"

namespace pc::kernels {

/// Tensors of f32, of any sizes: per tensor its elements and the arena offsets of its roles (parameter, gradient, ...).
struct TensorList {
  llvm::SmallVector<int64_t> elements;
  llvm::SmallVector<llvm::SmallVector<int64_t>> offsets;

  void add(int64_t count, llvm::SmallVector<int64_t> roles) {
    elements.push_back(count);
    offsets.push_back(std::move(roles));
  }
  /// Blocks that a kernel over all elements has.
  int64_t numBlocks() const;
};

/// AdamW in place: roles parameter, gradient, first and second moment. `arena` is the address of the arena.
void emitAdamW(SimtEmitter &e, mlir::Value arena, const TensorList &tensors, int64_t coefficient, int64_t hyper);
/// SGD in place: roles parameter, gradient.
void emitSGD(SimtEmitter &e, mlir::Value arena, const TensorList &tensors, int64_t coefficient, int64_t hyper);
/// Role 0, f32, rounded to bf16 at role 1.
void emitRounding(SimtEmitter &e, mlir::Value arena, const TensorList &tensors);
/// Sums of squares (role 0) of the part of each block, at `partials`, one f32 a block.
void emitSquares(SimtEmitter &e, mlir::Value arena, const TensorList &tensors, int64_t partials);
/// Per tensor the sum of its blocks' partials, stored at role 1.
void emitSquareTotals(SimtEmitter &e, mlir::Value arena, const TensorList &tensors, int64_t partials);

} // namespace pc::kernels
#endif
