//===- Together.h - Ops of a CUDA step that share one kernel --------------------------===//
// The optimizer, the rounding of weights and the gradient's norm touch every parameter: a kernel each for all of them,
// not one for each of them.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_TOGETHER_H
#define PC_LIB_CODEGEN_TOGETHER_H

#include "KernelSet.h"
#include "pc/IR/PC.h"

namespace pc {

struct Together {
  mlir::Block::iterator behind;               ///< What comes after the ops.
  llvm::SmallVector<mlir::Operation *> shown; ///< Outputs that stand among them: to be shown first.
  llvm::SmallVector<std::pair<std::string, KernelSet::Info>>
      launches; ///< Names and kernels; their argument is the arena.
};

/// The neighbours from `first` on that share a kernel, two at least; nothing where there are none. `isIdle` ops, for
/// which nothing runs, may stand between them. `partials` is the arena offset of memory for sums of blocks, of
/// `partialBytes` bytes.
std::optional<Together> findTogether(mlir::Block::iterator first, KernelSet &kernels, int64_t partials,
                                     int64_t partialBytes, llvm::function_ref<bool(mlir::Operation *)> isIdle);

} // namespace pc

#endif
