//===- Liveness.h - Live ranges of the values of a step -------------------------------===//
// Positions number the ops of a function in program order, including those inside `pc.accumulate`; a `pc.fusion` is one
// position, because it becomes one kernel. Memory planning and memory reports read it.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_LIVENESS_H
#define PC_IR_LIVENESS_H

#include "pc/IR/PC.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

namespace pc {

/// The bytes of one tensor, without alignment.
int64_t byteSize(mlir::Type tensor);

/// Whether `op` is a leaf: a parameter, state, input, rope_table, constant or block_offset. Its value exists before the
/// step and is live until its end.
bool isLeaf(mlir::Operation *op);

/// If the body of an accumulation over several microbatches computes a value and yields it, the value is added to its
/// sum right after the op that computes it. Returns that op if `use` is the yield's use of such a value. Returns null
/// for other yielded values, which are added at the end of the body.
mlir::Operation *addedAfter(mlir::OpOperand &use);

/// A live range: the positions from the definition to the last use, both included.
struct Lifetime {
  int64_t first = 0, last = 0;
};

/// Live ranges of all values that need a home: results of ops in a function and in the bodies of its accumulations.
/// * Leaves are live through the whole step, and stacks of which there are views (`pc.microbatch`) to its end.
/// * The body of an accumulation repeats, so values from outside that it uses, and its operands, are live to its end.
/// * The use of a value by a sum over microbatches (addedAfter) is at the op that computes the value.
/// * Results of an accumulation are live from its first op on; with one microbatch, from its end on.
/// * Results of a wait are live from the position of its start on, because moves may write them from then on. Inputs of
///   a start are live to the position of its wait.
class Liveness {
public:
  /// `body` is the (single) block of a function.
  explicit Liveness(mlir::Block &body);

  /// All values, in program order.
  llvm::ArrayRef<mlir::Value> values() const { return order; }
  /// The live range of `value`, which must be one of `values()`.
  Lifetime lifetime(mlir::Value value) const { return lifetimes.lookup(value); }
  /// The position of an op outside of fusions.
  int64_t position(mlir::Operation *op) const { return positions.lookup(op); }
  /// The position from which on `use` no longer needs its value.
  int64_t position(mlir::OpOperand &use) const;
  /// One past the last position.
  int64_t size() const { return numPositions; }

private:
  void number(mlir::Block &block);

  llvm::SmallVector<mlir::Value> order;
  llvm::DenseMap<mlir::Value, Lifetime> lifetimes;
  llvm::DenseMap<mlir::Operation *, int64_t> positions;
  int64_t numPositions = 0;
};

} // namespace pc

#endif
