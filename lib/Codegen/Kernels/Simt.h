//===- Simt.h - The Emitter for the threads of a GPU --------------------------------===//
// A team of threads works on one item (a row): what the kernel computes per item is computed by all of them, `vectors`
// deals the row's vectors out to them, and reductions meet in shuffles and shared memory, always in the same order.
// Teams of up to 256 threads share a block. Rows that are short enough stay in registers from one pass to the next.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_KERNELS_SIMT_H
#define PC_LIB_CODEGEN_KERNELS_SIMT_H

#include "Emit.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace pc::kernels {

class SimtEmitter : public Emitter {
public:
  /// Writes at `b`, inside of the entry block of `function`. `lanes` is the widest vector: 4 of f32, 8 where bf16 takes
  /// part. Vectors of 16 bytes are read and written at once: buffers start at multiples of 16 bytes.
  SimtEmitter(mlir::OpBuilder &b, mlir::Location loc, mlir::gpu::GPUFuncOp function, int64_t lanes)
      : Emitter(b, loc, lanes, /*roundsToBf16=*/true), function(function) {}

  mlir::gpu::GPUFuncOp function;

  /// Blocks of the grid and threads of a block, once the kernel is written.
  int64_t grid = 1, block = 1;

  /// Runs `body` for each of `items` items, each with the team that suits rows of `columns` elements. `reduces`: the
  /// body uses reductions; the team is then one or more whole warps of a block.
  void items(int64_t items, int64_t columns, bool reduces, llvm::function_ref<void(Num)> body);
  /// The same for teams of `threads` threads (1, or a multiple of 32) and `perBlock` of them in a block; the body uses
  /// `rank` and the calls below. Items of different teams must not meet at barriers unless `perBlock` is 1.
  void teams(int64_t items, int64_t threads, int64_t perBlock, llvm::function_ref<void(Num)> body);

  /// This thread's number in its team, and the team's size.
  Num rank;
  int64_t team = 1;

  void vectors(int64_t n, llvm::function_ref<void(Num, int64_t)> body) override;
  Carried reductions(int64_t n, llvm::ArrayRef<bool> isMax, llvm::function_ref<Carried(Num, int64_t)> body) override;
  Num exp(Num x) override;
  void once(llvm::function_ref<void()> body) override;

  /// The team's totals of a scalar per thread; all threads of the team get them.
  Carried across(llvm::ArrayRef<bool> isMax, Carried mine);
  /// The value of the thread whose number in the warp differs by `mask` (i32 or f32).
  Num shuffle(Num value, int64_t mask);
  /// `elements` f32, or others, of this block's memory, at a multiple of 16 bytes.
  Ptr shared(int64_t elements, mlir::Type element = {});
  void barrier();
  /// Starts to copy `bytes` (4 or 16) of global memory to shared memory while this thread goes on.
  void copyAsync(Ptr from, Ptr to, int64_t bytes);
  /// The copies started since the last call belong together; waits until all groups of this thread have arrived.
  void commitCopies();
  void waitForCopies();
  /// 2^x by the device's own instruction: relative error below 2^-22; below 2^-126 it is 0.
  Num exp2(Num x);
  /// One bit per thread of the warp: whether its condition holds (i32).
  Num matches(Num condition);
  /// Whether bit `bit` (i64) of the i32 `bits` is 0.
  Num bitClear(Num bits, Num bit);
  Num notBefore(Num x, Num y);
  /// `yes` where the condition holds, else what the body yields.
  Carried choose(Num condition, const Carried &yes, llvm::function_ref<Carried()> otherwise);
  /// What one or the other yields.
  Num pick(Num condition, llvm::function_ref<Num()> yes, llvm::function_ref<Num()> no);
  /// Elements of the vectors that cover [0, n) without a rest.
  int64_t widthFor(int64_t n) const;
  /// The larger one; NaN where one is.
  Num maximumOf(Num x, Num y);

protected:
  Num load(Ptr from, Num index, int64_t width) override;
  void store(Num value, Ptr to, Num index) override;

private:
  /// A vector of the row that this thread works on; `inside` is null where it always exists, else the index is that of
  /// another one where it does not.
  struct Piece {
    Num index, inside;
  };
  llvm::ArrayRef<Piece> pieces(int64_t n);
  Num special(mlir::Value index);

  int64_t perThread = 1;               ///< vectors of a row that one thread holds, where the row is cut over blocks
  bool independent = false;            ///< any thread may do any vector: no pass uses what another one has read
  int64_t chunks = 1;                  ///< blocks that share a row
  Num first;                           ///< the first vector of this thread
  Num inside;                          ///< where stores take place; null: everywhere
  mlir::Operation *prologue = nullptr; ///< behind it stands what all passes use
  llvm::DenseMap<int64_t, llvm::SmallVector<Piece>> known;
  int64_t numShared = 0;
};

} // namespace pc::kernels
#endif
