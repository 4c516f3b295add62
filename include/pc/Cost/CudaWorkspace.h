//===- CudaWorkspace.h - Memory that library calls of a CUDA program need ---------------------===//
// The following need scratch memory: matrix products and attention of the CUDA libraries, our own gradients of
// attention and of embeddings, sums over rows, and products of experts. They run one after the other, so they share one
// region at the end of the arena.
//===-----------------------------------------------------------------------------===//
#ifndef PC_COST_CUDAWORKSPACE_H
#define PC_COST_CUDAWORKSPACE_H

#include "pc/IR/PC.h"

namespace pc {

/// Offsets of buffers on CUDA devices are multiples of this.
constexpr int64_t cudaAlignment = 256;

/// The most scratch memory of one matrix product.
constexpr int64_t productScratchBytes = int64_t(32) << 20;

/// Says which ops of a CUDA program are library calls, and on which devices the program runs.
struct CudaLibraries {
  bool attention = true;   ///< bf16 attention is cuDNN's
  bool hopperOnly = false; ///< the program runs on sm_90 only, where cuDNN needs less scratch memory
  /// Takes the values of the passes' options: `attention` is "library" or "generated"; `archs` has sm_80, sm_90a, ...,
  /// or is empty for any device.
  CudaLibraries(llvm::StringRef attention, llvm::ArrayRef<std::string> archs);

  /// Whether cuDNN computes `op`, an attention or its gradient: it is in bf16, its heads have at most 128 elements in
  /// whole vectors, and it is not a part of a ring.
  bool takes(mlir::Operation *op) const;
};

/// Bytes of scratch memory that cuDNN 9 needs, as measured (test/Codegen/attention). It needs partial sums of dk and dv
/// in f32 if query heads share them, partial sums of dq except on Hopper, and less than 512 bytes for everything else.
int64_t attentionScratchBytes(mlir::Operation *op, CudaLibraries libraries);

/// The workspace of the gradient of attention: byte offsets of its pieces, and its size.
struct AttentionWorkspace {
  int64_t dqAccumulator = 0; ///< f32, the elements of dq
  int64_t doDotO = 0;        ///< f32, the elements of lse
  int64_t scratch = 0;       ///< attentionScratchBytes
  int64_t bytes = 0;

  /// `op` must be the gradient of attention, of q, k and v or of one packed tensor.
  AttentionWorkspace(mlir::Operation *op, CudaLibraries libraries);
};

/// Whether our own kernels use tensor cores for the attention of the queries `q`, and for its gradient. They do so in
/// bf16, if the size of a head is a multiple of 16 and at most 128.
bool isForTensorCores(mlir::Value q);

/// Whether `op` is the gradient of attention.
bool isAttentionGrad(mlir::Operation *op);

/// Returns the bytes at the start of the workspace that our own kernels of the gradient pass from one kernel to the
/// next. Kernels that use tensor cores pass rowsum(dout * o) in f32, with the shape of lse. Returns 0 for other kernels
/// and other ops.
int64_t attentionDotsBytes(mlir::Operation *op);
/// Returns the bytes of the scores that the first kernel of attention to a cache passes to the second one. Each query
/// head has a row with all positions and two more numbers. Returns 0 for other ops.
int64_t cachedScoresBytes(mlir::Operation *op);

/// A kernel that sums over rows uses at most this many blocks, two for each multiprocessor of an H100. A second kernel
/// adds the sums of the blocks in order.
constexpr int64_t columnSumBlocks = 264;

/// Returns the results of `op`, inside a fusion or not, that a GPU kernel sums over rows while it processes the rows
/// one by one. These are gradients of a norm's weights, and einsums "b s f -> f".
llvm::SmallVector<mlir::Value> columnSumsOf(mlir::Operation *op);

/// Returns the bytes, at the start of the workspace, of the sums in f32 of all blocks. Returns 0 if `op`, a fusion or
/// not, has no results that are summed over rows.
int64_t columnSumBytes(mlir::Operation *op);

/// The data that the kernels of an embedding's gradient pass to each other: sorted ids with their places in the batch,
/// and sums of rows. Offsets are in words of 4 bytes from the start of the workspace.
struct EmbeddingSort {
  static constexpr int64_t chunk = 32; ///< rows that are added one after another
  int64_t tile;                        ///< ids that are sorted at once
  int64_t padded;                      ///< number of ids, rounded up to whole tiles
  int64_t tileIds = 0, tilePlaces;     ///< sorted by tile
  /// For each sorted id: its place in the batch, its number among equal ids, and the number of equal ids.
  int64_t places, numbers, lengths;
  int64_t longRuns; ///< for every `chunk` ids, the start of a run of more than `chunk` ids, or -1
  int64_t sums;     ///< sums of chunks of long runs, two rows for every `chunk` ids, in f32
  int64_t bytes;

  explicit EmbeddingSort(EmbeddingGradOp op);
};

/// The data that the kernels of a routed einsum on rows pass to each other: the rows that exist according to the mask.
/// Offsets are in words of 4 bytes from the start of the workspace.
struct RowTables {
  static constexpr int64_t chunk = 32; ///< tokens that are counted at once, one by each thread of a warp
  int64_t tokens, experts, rows;       ///< sizes of the mask, and the maximum number of rows
  int64_t tile;                        ///< rows of a block, all of one expert
  int64_t tiles;                       ///< number of tiles, at most
  int64_t counts = 0;                  ///< for each expert and chunk, the number of tokens that have chosen the expert
  int64_t firstRows;                   ///< for each expert, the number of its first row; then the number of all rows
  int64_t tokenOf;                     ///< by row: its token
  int64_t rowOf;                       ///< for each token and expert, its row, or -1
  int64_t tileExperts, tileRows;       ///< for each tile, its expert (or -1) and its first row
  int64_t made;                        ///< the rows of a result by token before they are added, in f32
  int64_t bytes;

  explicit RowTables(EinsumOp op);
};

/// Whether `op` is a routed einsum that has an operand or a result that is stored by rows.
bool isOnRows(mlir::Operation *op);
/// The number of rows for which a routed einsum has memory. This is the number in the types of its operands and result,
/// or otherwise the number of choices that its tokens may make.
int64_t mostRows(EinsumOp op);

/// Bytes of the workspace of a step, a multiple of cudaAlignment; 0 if it needs none.
int64_t libraryWorkspaceBytes(mlir::Operation *step, CudaLibraries libraries);

} // namespace pc

#endif
