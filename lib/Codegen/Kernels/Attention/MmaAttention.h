//===- MmaAttention.h - Products of tiles on tensor cores, for attention -------------===//
// A warp multiplies 16 x 16 pieces of bf16 by mma.sync m16n8k16 and sums in f32. Of 16 rows of sums, a thread has two:
// `row` and `row` + 8. Of every 8 columns, it has two, from `column` on: sums[4 n + 2 r + c] is the sum in its row r
// and in column 8 n + `column` + c. ldmatrix loads operands from shared memory. Rows in shared memory are padded by 16
// bytes, so that eight rows are in different banks.
//
// On sm_90a, a warpgroup (four warps) multiplies 64 x 16 pieces at once with wgmma (WarpgroupProducts.cpp). Threads
// have the same elements of sums and of the left operand, and the right operand stays in shared memory. There, a tile
// consists of columns of 64 elements, whose rows of 128 bytes are swizzled.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_KERNELS_ATTENTION_MMAATTENTION_H
#define PC_LIB_CODEGEN_KERNELS_ATTENTION_MMAATTENTION_H

#include "../Kernels.h"
#include "Attention.h"

namespace pc::kernels {

/// The common code of forward and backward kernels on tensor cores: sizes of tiles, a thread's position in them, copies
/// of tiles, products, and stores of two rows. It emits code; its members are constants and values of the kernel.
class MmaAttention {
public:
  using Carried = Emitter::Carried;
  using Words = llvm::SmallVector<mlir::Value, 4>; ///< i32 registers of two bf16 each

  static constexpr double log2e = 1.4426950408889634;

  /// `warpgroups` is the number of warpgroups of a block, which multiply with wgmma. If it is 0, a block has four warps
  /// that multiply with mma.sync.
  MmaAttention(SimtEmitter &e, const AttentionShape &a, int64_t warpgroups)
      : e(e), a(a), warpgroups(warpgroups), threads(warpgroups ? 128 * warpgroups : 128), perBlock(threads / 2),
        pitch(warpgroups ? a.d : a.d + 8), pieces(a.d / 16), numHeads(a.heads * a.groups) {}
  /// The number of warpgroups: two if the target has wgmma and heads are whole columns of a tile, otherwise 0.
  static int64_t warpgroupsFor(const AttentionShape &a, const Kernel &kernel) {
    return kernel.warpgroups && a.d % 64 == 0 ? 2 : 0;
  }
  /// Must be called first inside the kernel.
  void begin();

  SimtEmitter &e;
  const AttentionShape &a;
  const int64_t warpgroups, threads;
  const int64_t perBlock; ///< rows of a block: 16 per warp
  const int64_t pitch;    ///< row stride of a tile, in elements
  const int64_t pieces;   ///< pieces of 16 elements in a row of d
  const int64_t numHeads;
  Num warp, row, column;

  /// The two rows of this thread, in the block whose rows begin at `first`. `inside` has the same rows, but none beyond
  /// the last of `count` rows.
  struct TwoRows {
    Num number[2], inside[2], exists[2];
  };
  TwoRows rows(Num first, int64_t count);

  /// Return the index of the first element of a row of q, of o, and of k and v, and the index of a query's statistic,
  /// such as lse.
  Num queryRow(Num batch, Num s, Num head) { return (batch * a.s + s) * a.queryStride() + a.queryAt(head); }
  Num outRow(Num batch, Num s, Num head) { return ((batch * a.s + s) * numHeads + head) * a.d; }
  Num keyRow(Num batch, Num t, Num keyHead) { return (batch * a.t + t) * a.keyStride() + a.keyAt(keyHead); }
  Num statistic(Num batch, Num s, Num head) { return (batch * numHeads + head) * a.s + s; }

  /// Allocates `rows` x d bf16 in shared memory.
  Ptr tile(int64_t rows) { return shared(rows * pitch, e.b.getBF16Type()); }
  /// Allocates other shared memory of the block. Kernels of warpgroups use only dynamic shared memory, so that their
  /// tiles begin at multiples of 1024 bytes.
  Ptr shared(int64_t elements, mlir::Type element) {
    return warpgroups ? e.sharedTile(elements, element) : e.shared(elements, element);
  }
  /// Starts to copy `rows` rows of d elements into a tile. rowAt(number) gives the place of a row. All threads of the
  /// block must call this function.
  void stage(Ptr from, Ptr to, int64_t rows, llvm::function_ref<Num(Num)> rowAt);
  /// Waits until the copies of all threads have arrived, and until no thread reads the previous tiles.
  void meetTiles();

  /// A left operand, in pieces of 16 columns. For warpgroups it may be a tile of the block's rows.
  struct Left {
    llvm::SmallVector<Words> pieces;
    Ptr tile;
  };
  /// Loads this warp's 16 rows as left operand from global memory. This thread's two rows begin at `from` + at[0] and
  /// `from` + at[1]. The second function loads the rows from a tile.
  Left left(Ptr from, const Num (&at)[2]);
  Left left(Ptr tile);
  /// Returns the left operand that consists of these sums, rounded to bf16.
  Left left(llvm::ArrayRef<Num> sums);

  /// Returns the product left * tile^T, for `rows` rows of the tile. Without `waits`, which only warpgroups support,
  /// the product only starts: its sums, the pieces of `left` and the tile may not be changed or read before `finish`.
  Carried timesTransposed(const Left &left, Ptr tile, int64_t rows, bool waits = true);
  /// Adds left * tile to `sums`. The tile has as many rows as `left` has columns. `waits` as above.
  void add(llvm::MutableArrayRef<Num> sums, const Left &left, Ptr tile, bool waits = true);
  /// Waits until at most the last `inFlight` of the products that were started are in flight. `lists` must contain the
  /// sums of all products that end here.
  void finish(int64_t inFlight, llvm::ArrayRef<llvm::MutableArrayRef<Num>> lists);

  Carried zeros(int64_t count) { return Carried(count, e.real(0)); }
  /// Reduce over the four threads that share a row.
  Num sumOfRow(Num x);
  Num maximumOfRow(Num x);
  /// Returns the score of the product of an existing query and key, of query head `head`. `bias` has all addends, if
  /// there are any.
  AttentionShape::Score score(Num product, Ptr bias, Num head, Num query, Num key) {
    Num addend = a.biased ? bias.load(head * a.addends() + a.addendsAt(query) + key) : Num();
    return a.score(e, product, addend);
  }
  /// Writes factor * sums to two rows of d elements, if they exist.
  void store(llvm::ArrayRef<Num> sums, Num factor[2], Ptr to, const Num (&at)[2], const Num (&exists)[2]);

private:
  Words matrices(Ptr at, bool transposed);
  mlir::Value word(Ptr from, Num at);
  // Used by warpgroups only.
  Num placeInTile(Num line, Num at, int64_t rows);
  Num descriptor(Ptr at, int64_t leading);
  Carried multiply(llvm::ArrayRef<Num> before, int64_t columns, const Left &left, llvm::ArrayRef<Num> right,
                   bool transposed, bool waits);
  Carried timesTransposedByWarpgroups(const Left &left, Ptr tile, int64_t rows, bool waits);
  Carried addByWarpgroups(llvm::ArrayRef<Num> before, const Left &left, Ptr tile, bool waits);

  /// The offset of this thread's row among the rows of four 8 x 8 matrices (ldmatrix). The matrices are ordered by rows
  /// first, or by columns first.
  Num rowsFirst, columnsFirst;
};

/// The queries of a block, which are all of one head, and the loop over tiles of the keys and values that these queries
/// see.
class QueryBlock {
public:
  using Carried = Emitter::Carried;

  /// Sets the number of blocks of the kernel. Allocates shared memory for two tiles of keys and two of values; a tile
  /// has `tile` keys. `keysAhead`: see passKeys.
  QueryBlock(MmaAttention &at, Kernel &kernel, int64_t tile, Ptr k, Ptr v, Ptr counts, Ptr bias, Ptr starts,
             const std::optional<Dropping> &dropping, bool keysAhead = false);
  /// Must be called first inside the kernel, with the number of the block.
  void begin(Num item);

  const int64_t tile; ///< keys of a tile
  /// Starts the copies of the next tiles. `meet` of passKeys must call it once, before or after it starts products.
  std::function<void()> copyNext;
  Num head, batch;
  MmaAttention::TwoRows query;
  Num rows[2], outRows[2]; ///< offsets of this thread's two queries, and of their results
  Num drawn[2];            ///< the rows of weights of the two queries, if weights are dropped

  /// Loops over tiles. meet(first key, tile of keys, tile of values, carried) returns the loop-carried values. Their
  /// initial values come from `init(tile of keys)`, which is emitted after the first copies. With `keysAhead`, `init`
  /// gets the first tile of keys, and `meet` the tile of keys after that of `first key`, or any keys if that is the
  /// last. Otherwise `init` must not read its tile.
  Carried passKeys(llvm::function_ref<Carried(Ptr)> init,
                   llvm::function_ref<Carried(Num, Ptr, Ptr, const Carried &)> meet);
  /// Replaces the products of a tile by scores. Returns the slopes of the scores, if there are any.
  Carried score(Num first, Carried &products);
  /// Replaces each element of `values` by `hidden` if the query does not see its key. `values` has the layout of a
  /// tile's scores. Call it in `meet`.
  Carried masked(Num first, Carried values, double hidden);
  /// Returns `values`, in the layout of a tile's scores, with 0 for dropped weights.
  Carried kept(Num first, const Carried &values);

private:
  MmaAttention &at;
  Ptr k, v, counts, bias, starts, keys, values, begins; ///< `begins`: starts of the block's batch row
  const std::optional<Dropping> &dropping;
  const bool keysAhead;
  const int64_t blocks;
  Num firstQuery, keyHead, sight[2], unseen[2];
  Num shared; ///< every query of the block sees the keys before this one
};

} // namespace pc::kernels
#endif
