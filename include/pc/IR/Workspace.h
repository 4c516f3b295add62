//===- Workspace.h - Memory that library calls of a CUDA program need ---------------------===//
// Matrix products and attention of the CUDA libraries work in memory beside their operands. They run one after the other,
// so one region at the end of the arena serves them all.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_WORKSPACE_H
#define PC_IR_WORKSPACE_H

#include "pc/IR/PC.h"

namespace pc {

/// Offsets of buffers on CUDA devices are multiples of this.
constexpr int64_t cudaAlignment = 256;

/// What one library call may ask for.
constexpr int64_t libraryScratchBytes = int64_t(32) << 20;

/// Pieces of the workspace that the gradient of attention uses: byte offsets in it, and their end.
struct AttentionWorkspace {
  int64_t dqAccumulator = 0; ///< f32, the elements of dq
  int64_t doDotO = 0;        ///< f32, the elements of lse
  int64_t scratch = 0;       ///< libraryScratchBytes
  int64_t bytes = 0;

  explicit AttentionWorkspace(AttentionGradOp op);
};

/// Bytes of the workspace of a step, a multiple of cudaAlignment; 0 if it calls no library.
int64_t libraryWorkspaceBytes(mlir::Operation *step);

} // namespace pc

#endif
