//===- Together.h - Ops of a CUDA step that share one kernel (multi-tensor) -----------===//
// The optimizer, the rounding of weights and the norm of gradients work on every parameter. Each of the three becomes
// one kernel for all parameters.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_HOST_TOGETHER_H
#define PC_LIB_CODEGEN_HOST_TOGETHER_H

#include "KernelSet.h"
#include "pc/IR/PC.h"

namespace pc {

/// Consecutive ops that a few kernels compute for all tensors at once.
struct Together {
  mlir::Block::iterator after;                ///< The op after them.
  llvm::SmallVector<mlir::Operation *> shown; ///< Outputs between the ops, which are observed before the kernels run.
  llvm::SmallVector<std::pair<std::string, KernelSet::Info>>
      launches; ///< Names and kernels, whose only argument is the arena.
};

/// Returns the ops from `first` on that share a kernel, if there are at least two. Ops for which nothing runs
/// (`isIdle`) may be between them. An evaluation (`isInEvaluation`) that needs the first op needs all. The sums of
/// thread blocks are at arena offset `partials`, where there are `partialBytes` bytes.
std::optional<Together> findTogether(mlir::Block::iterator first, KernelSet &kernels, int64_t partials,
                                     int64_t partialBytes, llvm::function_ref<bool(mlir::Operation *)> isIdle,
                                     llvm::function_ref<bool(mlir::Operation *)> isInEvaluation);

} // namespace pc

#endif
