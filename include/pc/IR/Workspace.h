//===- Workspace.h - Memory that library calls of a CUDA program need ---------------------===//
// Matrix products and attention of the CUDA libraries, and our own gradient of attention, work in memory beside their
// operands. They run one after the other, so one region at the end of the arena serves them all.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_WORKSPACE_H
#define PC_IR_WORKSPACE_H

#include "pc/IR/PC.h"

namespace pc {

/// Offsets of buffers on CUDA devices are multiples of this.
constexpr int64_t cudaAlignment = 256;

/// What one matrix product may ask for.
constexpr int64_t productScratchBytes = int64_t(32) << 20;

/// What the libraries of a CUDA program do, and where.
struct CudaLibraries {
  bool attention = true;   ///< bf16 attention is cuDNN's
  bool hopperOnly = false; ///< it runs on sm_90 alone, where cuDNN needs less
  /// From options of passes: "library" or "generated"; sm_80, sm_90a, ..., empty: any.
  CudaLibraries(llvm::StringRef attention, llvm::ArrayRef<std::string> archs);

  /// Whether an attention or its gradient is cuDNN's: bf16, heads of at most 128 elements in whole vectors,
  /// and no part of a ring.
  bool takes(AttentionOp op) const;
  bool takes(AttentionGradOp op) const;
};

/// What cuDNN 9 asks for besides the tensors it is given, measured (test/Codegen/attention): addends of dk and dv in
/// f32 where query heads share them, addends of dq once more on devices other than Hopper's, and less than 512 bytes.
int64_t attentionScratchBytes(AttentionOp op, CudaLibraries libraries);
int64_t attentionScratchBytes(AttentionGradOp op, CudaLibraries libraries);

/// Pieces of the workspace that the gradient of attention uses: byte offsets in it, and their end.
struct AttentionWorkspace {
  int64_t dqAccumulator = 0; ///< f32, the elements of dq
  int64_t doDotO = 0;        ///< f32, the elements of lse
  int64_t scratch = 0;       ///< attentionScratchBytes
  int64_t bytes = 0;

  AttentionWorkspace(AttentionGradOp op, CudaLibraries libraries);
};

/// Whether our own kernels do an attention of these queries, or its gradient, on tensor cores: bf16, heads of at most
/// 128 elements in pieces of 16.
bool isForTensorCores(mlir::Value q);

/// What those of the gradient hand from one to the next at the start of the workspace: f32 rowsum(dout * o), the
/// elements of lse; 0 for other kernels.
int64_t attentionDotsBytes(AttentionGradOp op);

/// Bytes of the workspace of a step, a multiple of cudaAlignment; 0 if it needs none.
int64_t libraryWorkspaceBytes(mlir::Operation *step, CudaLibraries libraries);

} // namespace pc

#endif
