//===- Buffers.h - Which values of a step share a home -----------------------------------===//
#ifndef PC_LIB_MEMORY_BUFFERS_H
#define PC_LIB_MEMORY_BUFFERS_H

#include "pc/IR/Calls.h"
#include "pc/IR/Liveness.h"

namespace pc {

/// The values of a step in groups that get one home each: an updated leaf with its leaf, a yielded value with the
/// result of its accumulation, a result with an operand that dies at its op, the result of a started move with its
/// input where the move works in place and nothing else reads the input from the start on. The results of a call lie in
/// its operands as its function, which has been planned, says.
class Buffers {
public:
  /// `dying`: arguments of `body`, of a function, that no caller needs any more.
  Buffers(mlir::Block &body, const Liveness &liveness, TaskFunctions &functions,
          llvm::ArrayRef<mlir::BlockArgument> dying = {});

  struct Buffer {
    llvm::SmallVector<mlir::Value, 2> values;
    int64_t bytes = 0;
    Lifetime life;
    mlir::Operation *leaf = nullptr; ///< lives through the whole step; the function, for its arguments
  };
  /// All buffers, in the order of their first values.
  llvm::SmallVector<Buffer> take();

private:
  unsigned find(unsigned i) const;
  void join(unsigned a, unsigned b);
  unsigned of(mlir::Value value) const;
  void shareYields(mlir::Block &body);
  void shareUpdates(mlir::Block &body);
  void shareOperands(mlir::Operation *op);
  void shareArguments(llvm::ArrayRef<mlir::BlockArgument> dying, mlir::Operation *terminator);
  void shareCalled(CallOp call);
  void shareStarted(StartOp start);

  const Liveness &liveness;
  TaskFunctions &functions;
  llvm::SmallVector<Buffer> buffers; ///< per value; the first one of a group holds what the group is
  mutable llvm::SmallVector<unsigned> parent;
  llvm::DenseMap<mlir::Value, unsigned>
      number; ///< block arguments of accumulations and microbatches: that of the stack
};

} // namespace pc

#endif
