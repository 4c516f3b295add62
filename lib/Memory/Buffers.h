//===- Buffers.h - Decides which values of a step share a home ---------------------------===//
// Input: a step, its liveness, and already planned functions. Result: buffers, for which the arena planner finds
// offsets.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_MEMORY_BUFFERS_H
#define PC_LIB_MEMORY_BUFFERS_H

#include "pc/IR/Calls.h"
#include "pc/IR/Liveness.h"

namespace pc {

/// Groups the values of a step into buffers, each of which gets one home (arena offset). Values that share a buffer: a
/// cache before and after a write; the new value of a leaf and the leaf; a yielded value and the result of its
/// accumulation; a result and an operand whose live range ends at the op; the result and the input of a started move
/// that works in place, if nothing else reads the input from the start on; a result of a call and the operand that the
/// (already planned) function overwrites with it.
class Buffers {
public:
  /// If `body` belongs to a function, `dying` are the arguments that no caller reads after the call.
  Buffers(mlir::Block &body, const Liveness &liveness, TaskFunctions &functions,
          llvm::ArrayRef<mlir::BlockArgument> dying = {});

  /// The values that share one home.
  struct Buffer {
    llvm::SmallVector<mlir::Value, 2> values;
    int64_t bytes = 0;
    Lifetime life;
    mlir::Operation *leaf = nullptr; ///< the leaf, live through the whole step; for an argument, its function
  };
  /// All buffers, in the order of their first values.
  llvm::SmallVector<Buffer> take();

private:
  /// Finds the representative of a buffer (union-find).
  unsigned find(unsigned i) const;
  void join(unsigned a, unsigned b);
  unsigned of(mlir::Value value) const;
  /// Each of these functions joins values for one of the reasons above.
  void shareYields(mlir::Block &body);
  void shareUpdates(mlir::Block &body);
  void shareOperands(mlir::Operation *op);
  void shareArguments(llvm::ArrayRef<mlir::BlockArgument> dying, mlir::Operation *terminator);
  void shareCalled(CallOp call);
  void shareStarted(StartOp start);

  const Liveness &liveness;
  TaskFunctions &functions;
  llvm::SmallVector<Buffer> buffers; ///< one per value; the first value of a group has the group's data
  mutable llvm::SmallVector<unsigned> parent;
  llvm::DenseMap<mlir::Value, unsigned>
      number; ///< block arguments of accumulations, and microbatches, have the number of the stack
};

} // namespace pc

#endif
