//===- Kernels.h - Kernels that are written by hand, per op --------------------------===//
// Each function sets items, scratch and kind and emits the loop over items [lo, hi). Items write disjoint memory and
// add in a fixed order, so results do not depend on the number of threads. Tensors are row major; the caller
// (Dispatch.cpp) has checked that they are static, not empty, and f32, bf16, i32 or codes.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_KERNELS_KERNELS_H
#define PC_LIB_CODEGEN_KERNELS_KERNELS_H

#include "../Emit/Kernel.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Generation.h"
#include "pc/IR/MoveRows.h"

namespace pc {
struct TiledCodes;
} // namespace pc

namespace pc::kernels {

/// Attention.h defines an item.
llvm::LogicalResult emit(AttentionOp op, Kernel &kernel);
llvm::LogicalResult emit(PackedAttentionOp op, Kernel &kernel);
llvm::LogicalResult emit(AttentionGradOp op, Kernel &kernel);
llvm::LogicalResult emit(PackedAttentionGradOp op, Kernel &kernel);
/// For CPUs; on a GPU, row kernels compute this gradient. Part 0 computes dx, and its item is a row. Part 1 computes
/// dgamma (and dbeta), and its item is a block of columns.
llvm::LogicalResult emit(LayerNormGradOp op, Kernel &kernel);
llvm::LogicalResult emit(RMSNormGradOp op, Kernel &kernel);
/// An item is one id.
llvm::LogicalResult emit(EmbeddingOp op, Kernel &kernel);
/// An item is a rectangle of the table. If `base` is given, the gradient is added to it instead of to zeros. `base` may
/// be the memory of the result.
llvm::LogicalResult emit(EmbeddingGradOp op, Kernel &kernel, Ptr base = {});
/// EmbeddingGradOp for GPUs: clears the table, sorts the ids in two steps, and adds rows of equal ids in two steps.
void emitSimt(EmbeddingGradOp op, Kernel &kernel, Ptr base);
constexpr unsigned embeddingGradParts = 5;
/// An item is a block of 4096 elements. Results may be the operands' own memory.
llvm::LogicalResult emit(AdamWOp op, Kernel &kernel);
llvm::LogicalResult emit(SGDOp op, Kernel &kernel);
/// BlockCodes.h defines an item. If the kernel works in place, an element is read before it is written.
llvm::LogicalResult emitCodedAdamW(FusionOp fusion, CodedAdamW coded, Kernel &kernel);
llvm::LogicalResult emit(EncodeOp op, Kernel &kernel);
llvm::LogicalResult emit(DecodeOp op, Kernel &kernel);
llvm::LogicalResult emit(EncodeScaledOp op, Kernel &kernel);
/// An item is a square of 128 x 128 elements.
llvm::LogicalResult emitTiledCodes(const TiledCodes &codes, Kernel &kernel);
llvm::LogicalResult emitTurnedCodes(EinsumOp op, Kernel &kernel);
llvm::LogicalResult emit(EncodeAddendOp op, Kernel &kernel);
llvm::LogicalResult emit(DecodeSumOp op, Kernel &kernel);
/// An item is one head of one token or, for interleaved pairs, a pair. The result may be the operand's own memory.
llvm::LogicalResult emit(RopeOp op, Kernel &kernel);
/// An item is a row.
llvm::LogicalResult emit(TopKOp op, Kernel &kernel);
/// An item is one of the groups of one row.
llvm::LogicalResult emit(TopGroupsOp op, Kernel &kernel);
/// An item is an expert and a sequence.
llvm::LogicalResult emit(AdmitOp op, Kernel &kernel);
/// An item is an expert.
llvm::LogicalResult emit(RoundOfRowsOp op, Kernel &kernel);
/// On a CPU, an item is a piece of the elements after `dim`, for one index of the dims before it or for one entry. On a
/// GPU, an item is one element.
llvm::LogicalResult emit(ColumnsOp op, Kernel &kernel);
llvm::LogicalResult emit(ResizeOp op, Kernel &kernel);
/// An item is a piece of the value. The result may be in the memory of the operand.
llvm::LogicalResult emit(ReshapeOp op, Kernel &kernel);
/// An item is a piece of an entry.
llvm::LogicalResult emit(StackOp op, Kernel &kernel);
llvm::LogicalResult emit(UnstackOp op, Kernel &kernel);
/// On a CPU, an item is a block of neighbouring recurrences; on a GPU, it is one recurrence. If `a` lacks dims, a
/// second part computes the gradient of `a`; an item is then an element of `a`, or a block of elements.
llvm::LogicalResult emit(RecurrenceOp op, Kernel &kernel);
llvm::LogicalResult emit(RecurrenceGradOp op, Kernel &kernel);
unsigned recurrenceGradParts(RecurrenceGradOp op);
/// An item is one head of one token.
llvm::LogicalResult emit(SplitQkvOp op, Kernel &kernel);
llvm::LogicalResult emit(JoinQkvOp op, Kernel &kernel);

/// An item is one key/value head of one token. For the threshold, it is a row.
llvm::LogicalResult emit(CacheWriteOp op, Kernel &kernel);
llvm::LogicalResult emit(CachedAttentionOp op, Kernel &kernel);
llvm::LogicalResult emit(GumbelOp op, Kernel &kernel);
llvm::LogicalResult emit(SamplingThresholdOp op, Kernel &kernel);

/// For GPUs: emits a routed einsum on rows. Parts 0 and 1 find the rows, and part 2 multiplies. If the result is by
/// token, part 3 adds.
llvm::LogicalResult emitGrouped(EinsumOp op, Kernel &kernel);
unsigned groupedParts(EinsumOp op);
/// For CPUs: emits the grouped product. An item is a block of columns.
llvm::LogicalResult emitPlainGrouped(EinsumOp op, Kernel &kernel);

/// For GPUs: sums over all rows the `count` vectors that terms(row, column, width) yields. finish(column, totals)
/// writes the totals. The order of additions is fixed.
void columnSums(Kernel &kernel, int64_t rows, int64_t columns, int64_t count,
                llvm::function_ref<Emitter::Carried(Num row, Num column, int64_t width)> terms,
                llvm::function_ref<void(Num column, const Emitter::Carried &totals)> finish);

} // namespace pc::kernels
#endif
