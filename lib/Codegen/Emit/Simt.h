//===- Simt.h - The Emitter for the threads of a GPU --------------------------------===//
// A team of threads works on one item (a row). Values per item are computed by all of its threads, `vectors` divides
// the row's vectors among them, and reductions use shuffles and shared memory, in a fixed order. Small teams share a
// block. Rows that are short enough stay in registers from one pass to the next.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_EMIT_SIMT_H
#define PC_LIB_CODEGEN_EMIT_SIMT_H

#include "Emit.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace pc::kernels {

/// The Emitter for one GPU kernel. Call items(), teams() or rowSums() once; inside the body, the functions of Emitter
/// work on the row of the team. All threads of a team execute the same calls, so barriers and shuffles are uniform.
class SimtEmitter : public Emitter {
public:
  /// Emits at `b`, inside of the entry block of `function`. `lanes` is the width of the widest vector: 4 for f32, 8 if
  /// there are bf16 buffers. Buffers start at multiples of 16 bytes, the largest size of one load or store.
  SimtEmitter(mlir::OpBuilder &b, mlir::Location loc, mlir::gpu::GPUFuncOp function, int64_t lanes)
      : Emitter(b, loc, lanes, /*roundsToBf16=*/true), function(function), widest(lanes) {}

  mlir::gpu::GPUFuncOp function;

  /// Blocks of the grid and threads of a block, once the kernel is written.
  int64_t grid = 1, block = 1;

  /// Runs `body` for each of `items` items, by teams whose size suits rows of `columns` elements. `reduces`: the body
  /// uses reductions; a team is then one or more whole warps of a block.
  void items(int64_t items, int64_t columns, bool reduces, llvm::function_ref<void(Num)> body);
  /// To be called before `items` or `rowSums` where rows of f32 meet rows of bf16. All accesses then have 16 bytes, and
  /// those of a warp are contiguous: if rows are whole warps of vectors, a vector is 4 elements and 4 more that lie 128
  /// further on, and neighbouring threads exchange halves of the bf16 that they load or store. Other rows have vectors
  /// of 4.
  void mixRows(int64_t columns);
  /// Runs `body` for each of `rows` rows by teams that each have many of them, `unroll` at a time; it may reduce, and
  /// calls addToSum for each vector of a row and each of `count` sums over the rows. partials[sum, block, column] get
  /// the sums of each of rowSumBlocks blocks, in f32.
  void rowSums(int64_t rows, int64_t columns, int64_t count, int64_t unroll, Ptr partials,
               llvm::function_ref<void(Num)> body);
  void addToSum(int64_t sum, Num index, Num value);
  int64_t rowSumBlocks(int64_t rows, int64_t columns) const;
  /// As `items` for teams of `threads` threads (1, or a multiple of 32), `perBlock` of them in a block; the body uses
  /// `rank` and the calls below. It may use barriers only if `perBlock` is 1.
  void teams(int64_t items, int64_t threads, int64_t perBlock, llvm::function_ref<void(Num)> body);

  /// This thread's number in its team, and the team's size.
  Num rank;
  int64_t team = 1;

  void vectors(int64_t n, llvm::function_ref<void(Num, int64_t)> body) override;
  void vectors(int64_t n, llvm::function_ref<Carried(Num, int64_t)> body, Store store) override;
  Carried reductions(int64_t n, llvm::ArrayRef<bool> isMax, llvm::function_ref<Carried(Num, int64_t)> body,
                     Store store = nullptr) override {
    return reductions(n, isMax, body, store, std::nullopt);
  }
  /// Entries of a reduction that belong together: the maximum of x, and the sum of e^(x - maximum). The body yields x
  /// for both, and the row is read once: sums so far are scaled when the maximum so far grows.
  struct SumExp {
    int64_t max, sum;
  };
  Carried reductions(int64_t n, llvm::ArrayRef<bool> isMax, llvm::function_ref<Carried(Num, int64_t)> body, Store store,
                     std::optional<SumExp> sumExp);
  /// Longer rows do not stay in registers from one pass to the next.
  static constexpr int64_t longestKept = 16384;
  llvm::SmallVector<int32_t> steps(int64_t width) override;
  Num exp(Num x) override;
  void once(llvm::function_ref<void()> body) override;

  /// Reduces scalars over the threads of the team; all threads get the totals.
  Carried across(llvm::ArrayRef<bool> isMax, Carried mine);
  /// The value of the thread whose number in the warp is this thread's xor `mask` (i32 or f32).
  Num shuffle(Num value, int64_t mask);
  /// A bit for each thread of the warp, whether the condition holds there (i32); the number of set bits; the number of
  /// set bits of threads before this one.
  Num ballot(Num condition);
  Num bitCount(Num word);
  Num bitsBefore(Num word);
  /// Shared memory of the block for `elements` f32, or elements of another type, at a multiple of 16 bytes.
  Ptr shared(int64_t elements, mlir::Type element = {});
  /// The same, but at a multiple of 1024 bytes, of memory that is the launch's own (`dynamicShared` bytes, once the
  /// kernel is written), of which there can be more than 48 KiB.
  Ptr sharedTile(int64_t elements, mlir::Type element);
  int64_t dynamicShared = 0;
  void barrier();
  /// Starts an asynchronous copy of `bytes` (4 or 16) from global to shared memory.
  void copyAsync(Ptr from, Ptr to, int64_t bytes);
  /// Makes a group of the copies started since the last call; waits for all groups of this thread.
  void commitCopies();
  void waitForCopies();
  /// 2^x by the device's own instruction: relative error below 2^-22; below 2^-126 it is 0.
  Num exp2(Num x);
  Num notBefore(Num x, Num y);
  /// `yes` where the condition holds, else what the body yields.
  Carried choose(Num condition, const Carried &yes, llvm::function_ref<Carried()> otherwise);
  /// The value of `yes` if the condition holds, else of `no`; only one of the two runs.
  Num pick(Num condition, llvm::function_ref<Num()> yes, llvm::function_ref<Num()> no);
  /// As `loop` for i = lo, lo + step, ... below hi with lo < step, four trips at a time.
  Carried unrolled(Num lo, int64_t hi, int64_t step, Carried init,
                   llvm::function_ref<Carried(Num, const Carried &)> body);
  /// The width of the widest vectors that cover [0, n) without a remainder, and have at most `widest` elements.
  int64_t widthFor(int64_t n) const;
  void setWidest(int64_t width) {
    widest = width;
    mixed = false;
  }
  /// The maximum; NaN if either is.
  Num maximumOf(Num x, Num y);

protected:
  Num load(Ptr from, Num index, int64_t width) override;
  void store(Num value, Ptr to, Num index) override;

private:
  /// A vector of the row that this thread works on. `inside` is whether it exists (null: always); if not, the index is
  /// that of a vector that does.
  struct Piece {
    Num index, inside;
  };
  /// The vectors that this thread has of a row of `n` elements, found once a length.
  llvm::ArrayRef<Piece> pieces(int64_t n);
  Num special(mlir::Value index);
  bool inRegisters(int64_t n) const;
  Num indexOf(Num vector, int64_t width);
  mlir::Value exchanged(mlir::Value halves);
  int64_t linesOf(int64_t columns) const;

  int64_t widest;
  bool mixed = false;                  ///< vectors are in two parts (mixRows)
  bool summing = false;                ///< in rowSums
  llvm::SmallVector<Carried> totals;   ///< by piece and sum: those over the rows so far
  Num rowExists;                       ///< of rowSums; null: always
  int64_t perBlock = 1;                ///< teams of a block
  Num line;                            ///< this team's number in its block
  int64_t perThread = 1;               ///< vectors that one thread has of a row that is divided over blocks
  bool independent = false;            ///< no pass uses values of another, so any thread may work on any vector
  int64_t chunks = 1;                  ///< blocks that share a row
  Num first;                           ///< the first vector of this thread
  Num inside;                          ///< condition of stores; null: always
  mlir::Operation *prologue = nullptr; ///< values that all passes use are emitted after it
  llvm::DenseMap<int64_t, llvm::SmallVector<Piece>> known;
  int64_t numShared = 0;
};

} // namespace pc::kernels
#endif
