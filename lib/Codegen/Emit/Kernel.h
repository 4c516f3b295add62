//===- Kernel.h - One kernel under construction ------------------------------------------===//
// An op or fusion becomes one kernel or several: on a CPU, functions of the C type pcrt_kernel_fn that run any range of
// the work; on a GPU, gpu.funcs that get the addresses of the buffers. Emitters write loops with the Emitter.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_EMIT_KERNEL_H
#define PC_LIB_CODEGEN_EMIT_KERNEL_H

#include "Simt.h"
#include "pc/IR/PC.h"

namespace pc {

/// A kernel that an emitter writes. The emitter sets the fields marked `out`. The work is [0, items). The kernel runs
/// any range [lo, hi) of it, and its results do not depend on how the items are divided into ranges.
struct Kernel {
  kernels::Emitter &e;
  llvm::SmallVector<kernels::Ptr> operands,
      results; ///< buffers of the op, in order, one for each of pieceBytes (f32, bf16, i32 elements)
  kernels::Num lo, hi;
  kernels::Ptr scratch;         ///< this thread's memory, f32 elements, 64-byte aligned
  unsigned part = 0;            ///< the number of this kernel among those of the op
  int64_t items = 0;            ///< out
  int64_t scratchBytes = 0;     ///< out
  bool multipliesPairs = false; ///< out, CPU: whether the kernel multiplies pairs of bf16
  /// out: "elementwise", "activation", "cast", "norm", "attention", "embedding", "loss", "optimizer", "reduction",
  /// "copy", "einsum", "index", "product", "recurrence"
  std::string kind = {};
  kernels::Num status = {};             ///< out, CPU only: i64, 0 or 1 + the index of the first bad element; null: 0
  kernels::Ptr workspace = {};          ///< GPU: memory that the op's kernels share, if they need any
  kernels::SimtEmitter *simt = nullptr; ///< GPU: `e`, with its own type; lo, hi and scratch are null
  bool warpgroups = false;              ///< GPU: whether the device has wgmma (KernelTarget)

  /// Runs `body` for every item. On a CPU, it runs for the items of [lo, hi) one by one. On a GPU, a team of threads
  /// runs it for each item. The size of a team suits rows of `columns` elements. `reduces` says whether the body uses
  /// sums or reductions.
  void forItems(int64_t count, int64_t columns, bool reduces, llvm::function_ref<void(kernels::Num)> body) {
    items = count;
    if (simt)
      simt->items(count, columns, reduces, body);
    else
      e.loop(lo, hi, 1, body);
  }
};

/// Returns the number of kernels of an op on a GPU (`simt`) or CPU. They run one after another. For example,
/// layer_norm_grad has one kernel over rows and one over columns.
unsigned numKernels(mlir::Operation *op, bool simt);

/// Returns the bytes of the workspace in which the op's kernels on a GPU pass data to each other; 0 if they need none.
/// The workspace's address is the last argument of each of these kernels.
int64_t kernelWorkspaceBytes(mlir::Operation *op);

/// Returns the byte offsets of the kernels' buffers in operand or result `number` of the op. Results are numbered after
/// operands. Usually there is one buffer. Packed heads have three: queries, keys and values.
llvm::SmallVector<int64_t> pieceBytes(mlir::Operation *op, unsigned number);

/// Emits kernel `kernel.part` of `op` at the emitter's insertion point. Fails with an error at an op that has no
/// kernel.
llvm::LogicalResult emitKernel(mlir::Operation *op, Kernel &kernel);

/// Emits a special kernel (attention, gradients of norms, embeddings, optimizers, rope) like emitKernel. Returns
/// std::nullopt if `op` has none.
std::optional<llvm::LogicalResult> emitSpecialKernel(mlir::Operation *op, Kernel &kernel);
unsigned numSpecialKernels(mlir::Operation *op, bool simt);

} // namespace pc

#endif
