//===- CudaWorkspace.h - Memory that library calls of a CUDA program need ---------------------===//
// Matrix products and attention of the CUDA libraries, our own gradients of attention and of embeddings, sums over
// rows, and products of experts need scratch memory. They run one after the other, so they share one region at the end
// of the arena.
//===-----------------------------------------------------------------------------===//
#ifndef PC_COST_CUDAWORKSPACE_H
#define PC_COST_CUDAWORKSPACE_H

#include "pc/IR/PC.h"

namespace pc {

/// Offsets of buffers on CUDA devices are multiples of this.
constexpr int64_t cudaAlignment = 256;

/// The most scratch memory of one matrix product.
constexpr int64_t productScratchBytes = int64_t(32) << 20;

/// Which ops of a CUDA program are library calls, and on which devices it runs.
struct CudaLibraries {
  bool attention = true;   ///< bf16 attention is cuDNN's
  bool hopperOnly = false; ///< it runs on sm_90 only, where cuDNN needs less scratch memory
  /// From options of passes: "library" or "generated"; sm_80, sm_90a, ..., empty: any.
  CudaLibraries(llvm::StringRef attention, llvm::ArrayRef<std::string> archs);

  /// Whether `op` is attention or its gradient and cuDNN's: bf16, heads of at most 128 elements in whole vectors,
  /// and no part of a ring.
  bool takes(mlir::Operation *op) const;
};

/// The scratch memory of cuDNN 9, as measured (test/Codegen/attention): partial sums of dk and dv in f32 where query
/// heads share them, partial sums of dq on devices other than Hopper's, and less than 512 bytes for anything else.
int64_t attentionScratchBytes(mlir::Operation *op, CudaLibraries libraries);

/// The workspace of the gradient of attention: byte offsets of its pieces, and its size.
struct AttentionWorkspace {
  int64_t dqAccumulator = 0; ///< f32, the elements of dq
  int64_t doDotO = 0;        ///< f32, the elements of lse
  int64_t scratch = 0;       ///< attentionScratchBytes
  int64_t bytes = 0;

  /// Constraint: `op` is the gradient of attention, of q, k and v or of one packed tensor.
  AttentionWorkspace(mlir::Operation *op, CudaLibraries libraries);
};

/// Whether our own kernels compute attention of these queries, and its gradient, on tensor cores: bf16, heads of at
/// most 128 elements and a multiple of 16.
bool isForTensorCores(mlir::Value q);

/// Whether `op` is the gradient of attention.
bool isAttentionGrad(mlir::Operation *op);

/// Bytes that our own kernels of the gradient keep at the start of the workspace from one kernel to the next:
/// rowsum(dout * o) in f32, of the shape of lse, if they use tensor cores; else, and of other ops, 0.
int64_t attentionDotsBytes(mlir::Operation *op);

/// Kernels that sum over rows do so in at most this many blocks, two for each multiprocessor of an H100; a second
/// kernel adds the blocks' sums in order.
constexpr int64_t columnSumBlocks = 264;

/// The results of `op`, inside a fusion or alone, that a kernel of a GPU sums over rows while it works on these row by
/// row: gradients of a norm's weights, and "b s f -> f".
llvm::SmallVector<mlir::Value> columnSumsOf(mlir::Operation *op);

/// Bytes that the sums of blocks take at the start of the workspace, in f32; 0 if `op`, a fusion or not, has no such
/// results.
int64_t columnSumBytes(mlir::Operation *op);

/// What the kernels of an embedding's gradient pass to each other, in words of 4 bytes from the start of the workspace
/// on: ids and their places in the batch, sorted, and sums of rows.
struct EmbeddingSort {
  static constexpr int64_t chunk = 32; ///< rows that are added one after another
  int64_t tile;                        ///< ids that are sorted at once
  int64_t padded;                      ///< ids, to whole tiles
  int64_t tileIds = 0, tilePlaces;     ///< sorted by tile
  int64_t places, numbers,
      lengths;      ///< sorted: where it was, its number among equal ids, and how many of these there are
  int64_t longRuns; ///< per `chunk` ids: where a run of more than `chunk` ids begins, or -1
  int64_t sums;     ///< of chunks of long runs: two rows per `chunk` ids, in f32
  int64_t bytes;

  explicit EmbeddingSort(EmbeddingGradOp op);
};

/// What the kernels of a routed einsum on rows pass to each other: which rows exist, found from the mask, in words of
/// 4 bytes from the start of the workspace on.
struct RowTables {
  static constexpr int64_t chunk = 32; ///< tokens that are counted at once, one by each thread of a warp
  int64_t tokens, experts, rows;       ///< of the mask; rows: the most there can be
  int64_t tile;                        ///< rows of a block, all of one expert
  int64_t tiles;                       ///< the most there can be
  int64_t counts = 0;                  ///< by expert and chunk: how many of its tokens have chosen the expert
  int64_t firstRows;                   ///< by expert, and after the last one: how many there are
  int64_t tokenOf;                     ///< by row
  int64_t rowOf;                       ///< by token and expert, or -1
  int64_t tileExperts, tileRows;       ///< by tile: its expert, or -1; its first row
  int64_t made;                        ///< of a result by token: its rows before they are added, in f32
  int64_t bytes;

  explicit RowTables(EinsumOp op);
};

/// Whether `op` is a routed einsum with an operand or a result that is stored by rows.
bool isOnRows(mlir::Operation *op);
/// Rows for which a routed einsum has memory: those that types of its operands and its result say, else as many as its
/// tokens may choose.
int64_t mostRows(EinsumOp op);

/// Bytes of the workspace of a step, a multiple of cudaAlignment; 0 if it needs none.
int64_t libraryWorkspaceBytes(mlir::Operation *step, CudaLibraries libraries);

} // namespace pc

#endif
