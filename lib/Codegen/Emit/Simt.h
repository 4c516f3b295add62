//===- Simt.h - The Emitter for the threads of a GPU --------------------------------===//
// A team of threads works on one item (a row). All threads of the team compute the values that exist once per item,
// `vectors` divides the row's vectors among them, and reductions use shuffles and shared memory, in a fixed order.
// Small teams share a block. Short rows stay in registers between passes.
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

  /// The numbers of blocks of the grid and of threads of a block. Valid after the kernel is written.
  int64_t grid = 1, block = 1;

  /// Runs `body` for each of `items` items, by teams whose size suits rows of `columns` elements. If `reduces` is true,
  /// the body may use reductions, and a team is one or more whole warps of a block.
  void items(int64_t items, int64_t columns, bool reduces, llvm::function_ref<void(Num)> body);
  /// Call this before `items` or `rowSums` if a kernel has both f32 rows and bf16 rows. All accesses then have 16
  /// bytes, and those of a warp are contiguous. If a row divides into whole warps of vectors, a vector consists of 4
  /// elements and of 4 more that begin 128 elements later. Neighbouring threads then exchange halves of the bf16
  /// elements that they load or store. Other rows have vectors of 4 elements.
  void mixRows(int64_t columns);
  /// Runs `body` for each of `rows` rows. A team has many rows, and works on `unroll` of them at a time. The body may
  /// use reductions. It calls addToSum for each vector of a row and each of `count` sums over the rows. Each of
  /// rowSumBlocks blocks writes its sums, in f32, to partials[sum, block, column].
  void rowSums(int64_t rows, int64_t columns, int64_t count, int64_t unroll, Ptr partials,
               llvm::function_ref<void(Num)> body);
  void addToSum(int64_t sum, Num index, Num value);
  int64_t rowSumBlocks(int64_t rows, int64_t columns) const;
  /// Runs the body for each of `items` items, by teams of `threads` threads (1, or a multiple of 32). A block has
  /// `perBlock` teams. The body uses `rank` and the functions below. It may use barriers only if `perBlock` is 1.
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
  /// Two entries of a reduction that are computed together: the maximum of x, and the sum of e^(x - maximum). The body
  /// yields x for both entries. It reads the row only once, because the running sum is rescaled when the running
  /// maximum grows.
  struct SumExp {
    int64_t max, sum;
  };
  Carried reductions(int64_t n, llvm::ArrayRef<bool> isMax, llvm::function_ref<Carried(Num, int64_t)> body, Store store,
                     std::optional<SumExp> sumExp);
  /// Longer rows do not stay in registers between passes.
  static constexpr int64_t longestKept = 16384;
  llvm::SmallVector<int32_t> steps(int64_t width) override;
  Num exp(Num x) override;
  void once(llvm::function_ref<void()> body) override;

  /// Reduces scalars over the threads of the team; all threads get the totals.
  Carried across(llvm::ArrayRef<bool> isMax, Carried mine);
  /// Returns the value of the thread whose number in the warp is this thread's number xor `mask`. The value is i32 or
  /// f32.
  Num shuffle(Num value, int64_t mask);
  /// `ballot` returns an i32 with one bit per thread of the warp, which is set if the condition holds in that thread.
  /// `bitCount` counts the set bits, and `bitsBefore` the set bits of threads with lower numbers.
  Num ballot(Num condition);
  Num bitCount(Num word);
  Num bitsBefore(Num word);
  /// Allocates shared memory of the block for `elements` f32, or elements of another type, aligned to 16 bytes.
  Ptr shared(int64_t elements, mlir::Type element = {});
  /// Allocates `elements` elements, aligned to 1024 bytes, in dynamic shared memory, which may exceed 48 KiB. After the
  /// kernel is written, `dynamicShared` has its size in bytes.
  Ptr sharedTile(int64_t elements, mlir::Type element);
  int64_t dynamicShared = 0;
  void barrier();
  /// Starts an asynchronous copy of `bytes` (4 or 16) from global to shared memory.
  void copyAsync(Ptr from, Ptr to, int64_t bytes);
  /// `commitCopies` makes a group of the copies that were started since its last call. `waitForCopies` waits for all
  /// groups of this thread.
  void commitCopies();
  void waitForCopies();
  /// Computes 2^x with the device's instruction. The relative error is below 2^-22; results below 2^-126 are 0.
  Num exp2(Num x);
  Num notBefore(Num x, Num y);
  /// Returns `yes` if the condition holds, otherwise the values that the body yields.
  Carried choose(Num condition, const Carried &yes, llvm::function_ref<Carried()> otherwise);
  /// Returns the result of `yes` if the condition holds, otherwise the result of `no`. Only one of the two functions
  /// runs.
  Num pick(Num condition, llvm::function_ref<Num()> yes, llvm::function_ref<Num()> no);
  /// Writes a `loop` for i = lo, lo + step, ... below hi, unrolled by four. `lo` must be less than `step`.
  Carried unrolled(Num lo, int64_t hi, int64_t step, Carried init,
                   llvm::function_ref<Carried(Num, const Carried &)> body);
  /// Returns the width of the widest vectors that cover [0, n) without a remainder, and have at most `widest` elements.
  int64_t widthFor(int64_t n) const;
  void setWidest(int64_t width) {
    widest = width;
    mixed = false;
  }
  /// Returns the maximum of x and y, or NaN if either is NaN.
  Num maximumOf(Num x, Num y);

protected:
  Num load(Ptr from, Num index, int64_t width) override;
  void store(Num value, Ptr to, Num index) override;

private:
  /// A vector of the row that this thread works on. `inside` says whether the vector exists (null: always). If the
  /// vector does not exist, the index is that of another vector that exists.
  struct Piece {
    Num index, inside;
  };
  /// Returns this thread's vectors of a row of `n` elements. They are computed once per length.
  llvm::ArrayRef<Piece> pieces(int64_t n);
  Num special(mlir::Value index);
  bool inRegisters(int64_t n) const;
  Num indexOf(Num vector, int64_t width);
  mlir::Value exchanged(mlir::Value halves);
  int64_t linesOf(int64_t columns) const;

  int64_t widest;
  bool mixed = false;                  ///< vectors are in two parts (mixRows)
  bool summing = false;                ///< in rowSums
  llvm::SmallVector<Carried> totals;   ///< by piece and sum: the running sums over rows
  Num rowExists;                       ///< in rowSums: whether the row exists; null: always
  int64_t perBlock = 1;                ///< teams of a block
  Num line;                            ///< this team's number in its block
  int64_t perThread = 1;               ///< vectors of a thread in a row that is divided over blocks
  bool independent = false;            ///< no pass uses values of another pass, so any thread may work on any vector
  int64_t chunks = 1;                  ///< blocks that share a row
  Num first;                           ///< the first vector of this thread
  Num inside;                          ///< the condition for stores; null: always
  mlir::Operation *prologue = nullptr; ///< values that all passes use are emitted after it
  llvm::DenseMap<int64_t, llvm::SmallVector<Piece>> known;
  int64_t numShared = 0;
};

} // namespace pc::kernels
#endif
