//===- Kernel.h - One kernel under construction ------------------------------------------===//
// An op or fusion becomes one or more kernels: on a CPU functions of the C type pcrt_kernel_fn, which run any range of
// the work; on a GPU gpu.funcs of the buffers' addresses. Emitters get buffers as addresses and write loops with the
// Emitter.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_KERNEL_H
#define PC_LIB_CODEGEN_KERNEL_H

#include "Kernels/Simt.h"
#include "pc/IR/PC.h"

namespace pc {

/// What an emitter fills in. The work is [0, items); the kernel runs any sub-range [lo, hi), and its results don't
/// depend on how the items are cut.
struct Kernel {
  kernels::Emitter &e;
  llvm::SmallVector<kernels::Ptr> operands, results; ///< of the op, in order (f32, bf16 or i32 elements)
  kernels::Num lo, hi;
  kernels::Ptr scratch;     ///< this thread's memory, f32 elements, 64-byte aligned
  unsigned part = 0;        ///< which of the op's kernels this is
  int64_t items = 0;        ///< out
  int64_t scratchBytes = 0; ///< out
  std::string kind =
      {}; ///< out: "elementwise", "norm", "attention", "embedding", "loss", "optimizer", "reduction", "copy"
  kernels::Num status = {};             ///< out: i64, 0 or 1 + index of the first bad element; null means 0 (CPU only)
  kernels::Ptr workspace = {};          ///< on a GPU, where the op's kernels hand something on there: its address
  kernels::SimtEmitter *simt = nullptr; ///< `e` where the kernel is for a GPU; then lo, hi and scratch are null

  /// Runs `body` for every item: on a CPU for those of [lo, hi) one by one, on a GPU for each by a team of threads that
  /// suits rows of `columns` elements. `reduces`: the body uses sums or reductions.
  void forItems(int64_t count, int64_t columns, bool reduces, llvm::function_ref<void(kernels::Num)> body) {
    items = count;
    if (simt)
      simt->items(count, columns, reduces, body);
    else
      e.loop(lo, hi, 1, body);
  }
};

/// How many kernels the op becomes on a GPU or a CPU, run one after the other (layer_norm_grad: rows, then columns).
unsigned numKernels(mlir::Operation *op, bool simt);

/// Bytes of the workspace that the op's kernels on a GPU hand on to each other; their last argument is its address. 0:
/// they get none.
int64_t kernelWorkspaceBytes(mlir::Operation *op);

/// Emits kernel `kernel.part` of `op` at the emitter's insertion point. Fails with an error at an op that has no
/// kernel.
llvm::LogicalResult emitKernel(mlir::Operation *op, Kernel &kernel);

/// The same for the special kernels (attention, gradients of norms, embeddings, optimizers, rope); std::nullopt if `op`
/// is not one of them.
std::optional<llvm::LogicalResult> emitSpecialKernel(mlir::Operation *op, Kernel &kernel);
unsigned numSpecialKernels(mlir::Operation *op, bool simt);

} // namespace pc

#endif
