//===- MmaAttention.h - Products of tiles on tensor cores, for attention -------------===//
// A warp multiplies 16 x 16 pieces of bf16 by mma.sync m16n8k16 and sums in f32. Of 16 rows of sums a thread has two,
// `row` and `row` + 8; of every 8 columns it has two, from `column` on: sums[4 n + 2 r + c] is that of its row r and of
// column 8 n + `column` + c. Operands are loaded from shared memory by ldmatrix; rows there are padded by 16 bytes, so
// that eight rows lie on different banks.
//
// On sm_90a a warpgroup, four warps, multiplies 64 x 16 pieces at once by wgmma (WarpgroupProducts.cpp); threads have
// the same places of sums and of the left operand, and the right one stays in shared memory. There, tiles are columns
// of 64 elements, whose rows of 128 bytes are swizzled.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_KERNELS_ATTENTION_MMAATTENTION_H
#define PC_LIB_CODEGEN_KERNELS_ATTENTION_MMAATTENTION_H

#include "../Kernels.h"
#include "Attention.h"

namespace pc::kernels {

/// What forward and backward kernels on tensor cores share: sizes of tiles, the place of a thread in them, copies of
/// tiles, products, and stores of two rows. It emits code; its members are constants and values of the kernel.
class MmaAttention {
public:
  using Carried = Emitter::Carried;
  using Words = llvm::SmallVector<mlir::Value, 4>; ///< i32 registers of two bf16 each

  static constexpr double log2e = 1.4426950408889634;

  /// `warpgroups`: of a block, which multiply by wgmma; 0: it has four warps that multiply by mma.sync.
  MmaAttention(SimtEmitter &e, const AttentionShape &a, int64_t warpgroups)
      : e(e), a(a), warpgroups(warpgroups), threads(warpgroups ? 128 * warpgroups : 128), perBlock(threads / 2),
        pitch(warpgroups ? a.d : a.d + 8), pieces(a.d / 16), numHeads(a.heads * a.groups) {}
  /// Two, where the target has wgmma, for heads of whole columns of a tile.
  static int64_t warpgroupsFor(const AttentionShape &a, const Kernel &kernel) {
    return kernel.warpgroups && a.d % 64 == 0 ? 2 : 0;
  }
  /// Call this first inside of the kernel.
  void begin();

  SimtEmitter &e;
  const AttentionShape &a;
  const int64_t warpgroups, threads;
  const int64_t perBlock; ///< rows of a block: 16 per warp
  const int64_t pitch;    ///< elements of a tile by its rows
  const int64_t pieces;   ///< of 16 elements, in a row of d
  const int64_t numHeads;
  Num warp, row, column;

  /// The two rows of this thread among those of the block, which begin at `first`. `inside`: at most the last of
  /// `count` rows.
  struct TwoRows {
    Num number[2], inside[2], exists[2];
  };
  TwoRows rows(Num first, int64_t count);

  /// The first element of a row of q, of o, of k and v; and the element of a statistic of a query, as lse.
  Num queryRow(Num batch, Num s, Num head) { return (batch * a.s + s) * a.queryStride() + a.queryAt(head); }
  Num outRow(Num batch, Num s, Num head) { return ((batch * a.s + s) * numHeads + head) * a.d; }
  Num keyRow(Num batch, Num t, Num keyHead) { return (batch * a.t + t) * a.keyStride() + a.keyAt(keyHead); }
  Num statistic(Num batch, Num s, Num head) { return (batch * numHeads + head) * a.s + s; }

  /// `rows` x d bf16 in shared memory.
  Ptr tile(int64_t rows) { return shared(rows * pitch, e.b.getBF16Type()); }
  /// Other shared memory of the block. In kernels of warpgroups all shared memory belongs to the launch: with none
  /// before it, it begins at a multiple of 1024 bytes on a device.
  Ptr shared(int64_t elements, mlir::Type element) {
    return warpgroups ? e.sharedTile(elements, element) : e.shared(elements, element);
  }
  /// Starts to copy `rows` rows of d elements, from rowAt(number), into a tile. The whole block takes part.
  void stage(Ptr from, Ptr to, int64_t rows, llvm::function_ref<Num(Num)> rowAt);
  /// Waits until the tiles that all threads have started to copy are there, and no thread reads the earlier ones.
  void meetTiles();

  /// A left operand: 16 columns a piece; for warpgroups it may be a tile of the block's rows.
  struct Left {
    llvm::SmallVector<Words> pieces;
    Ptr tile;
  };
  /// This warp's 16 rows as left operand; from global memory, where this thread's two rows are at `from` + at[0] and
  /// at[1], or from a tile.
  Left left(Ptr from, const Num (&at)[2]);
  Left left(Ptr tile);
  /// Sums as left operand, rounded to bf16.
  Left left(llvm::ArrayRef<Num> sums);

  /// left tile^T, for `rows` rows of the tile.
  Carried timesTransposed(const Left &left, Ptr tile, int64_t rows);
  /// sums += left tile; left has 16 columns a piece, the tile as many rows.
  void add(llvm::MutableArrayRef<Num> sums, const Left &left, Ptr tile);

  Carried zeros(int64_t count) { return Carried(count, e.real(0)); }
  /// Reductions over the four threads that share a row.
  Num sumOfRow(Num x);
  Num maximumOfRow(Num x);
  /// The score of `product` of a query and a key, which exist, of query head `head`; `bias`: all addends, if there are.
  AttentionShape::Score score(Num product, Ptr bias, Num head, Num query, Num key) {
    Num addend = a.biased ? bias.load(head * a.addends() + a.addendsAt(query) + key) : Num();
    return a.score(e, product, addend);
  }
  /// Writes factor * sums to two rows of d elements, those that exist.
  void store(llvm::ArrayRef<Num> sums, Num factor[2], Ptr to, const Num (&at)[2], const Num (&exists)[2]);

private:
  Words matrices(Ptr at, bool transposed);
  mlir::Value word(Ptr from, Num at);
  // Used by warpgroups only.
  Num placeInTile(Num line, Num at, int64_t rows);
  Num descriptor(Ptr at, int64_t leading);
  Carried multiply(llvm::ArrayRef<Num> before, int64_t columns, const Left &left, llvm::ArrayRef<Num> right,
                   bool transposed);
  Carried timesTransposedByWarpgroups(const Left &left, Ptr tile, int64_t rows);
  Carried addByWarpgroups(llvm::ArrayRef<Num> before, const Left &left, Ptr tile);

  /// The offset of this thread's row among four 8 x 8 matrices (ldmatrix): from matrix to matrix rows advance first, or
  /// columns.
  Num rowsFirst, columnsFirst;
};

/// The queries of a block, all of one head, and the loop over tiles of the keys and values that they see.
class QueryBlock {
public:
  using Carried = Emitter::Carried;

  /// Sets the number of blocks of the kernel; takes shared memory for two tiles each of keys and values, of `tile`
  /// keys.
  QueryBlock(MmaAttention &at, Kernel &kernel, int64_t tile, Ptr k, Ptr v, Ptr counts, Ptr bias, Ptr starts,
             const std::optional<Dropping> &dropping);
  /// Call this first inside of the kernel, with the number of the block.
  void begin(Num item);

  const int64_t tile; ///< keys of a tile
  Num head, batch;
  MmaAttention::TwoRows query;
  Num rows[2], outRows[2]; ///< where this thread's two queries, and their results, begin
  Num drawn[2];            ///< their rows of weights, if some are dropped

  /// The loop over tiles: meet(first key, tile of keys, tile of values, carried) returns the loop-carried values. They
  /// begin as `init()`, which is emitted after the first copies.
  Carried passKeys(llvm::function_ref<Carried()> init,
                   llvm::function_ref<Carried(Num, Ptr, Ptr, const Carried &)> meet);
  /// Products of a tile replaced by scores; returns their slopes, if they have some.
  Carried score(Num first, Carried &products);
  /// `values`, in the layout of a tile's scores, replaced by `hidden` where the query does not see the key. For use in
  /// `meet`.
  Carried masked(Num first, Carried values, double hidden);
  /// `values` in that layout, without values of weights that are dropped.
  Carried kept(Num first, const Carried &values);

private:
  MmaAttention &at;
  Ptr k, v, counts, bias, starts, keys, values, begins; ///< `begins`: starts of the block's batch row
  const std::optional<Dropping> &dropping;
  const int64_t blocks;
  Num firstQuery, keyHead, sight[2], unseen[2];
  Num shared; ///< every query of the block sees the keys before this one
};

} // namespace pc::kernels
#endif
