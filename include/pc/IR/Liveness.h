//===- Liveness.h - How long the values of a step are needed -------------------------===//
// Positions number the ops of a function in program order, those inside `pc.accumulate` included, those inside
// `pc.fusion` not (a kernel happens at once). Memory planning and memory reports read it.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_LIVENESS_H
#define PC_IR_LIVENESS_H

#include "pc/IR/PC.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

namespace pc {

/// The bytes of one tensor, without alignment.
int64_t byteSize(mlir::Type tensor);

/// Whether the value of `op` is there before the step begins and stays: parameter, state, input, rope_table, constant,
/// block_offset.
bool isLeaf(mlir::Operation *op);

/// What the body of an accumulation over several microbatches yields is added to its sum as soon as it is there, behind
/// the op that makes it: that op, if `use` is such a yield's. Else null; what the body does not make is added at its
/// end.
mlir::Operation *addedBehind(mlir::OpOperand &use);

/// Positions from the definition to the last use, both included.
struct Lifetime {
  int64_t first = 0, last = 0;
};

/// Lifetimes of all values that need a home: results of ops in a function and in the bodies of its accumulations.
/// * Leaves live through the whole step.
/// * The body of an accumulation repeats, so what it uses from outside, and its operands, live to its end.
/// * Adding to a sum (addedBehind) ends with the op that makes what is added.
/// * Results of an accumulation live from its start, or from its end where there is one microbatch.
/// * Results of a wait live from its start, where moves may begin to write them; inputs of a start live to its wait.
class Liveness {
public:
  /// `body` is the (single) block of a function.
  explicit Liveness(mlir::Block &body);

  /// All values, in program order.
  llvm::ArrayRef<mlir::Value> values() const { return order; }
  /// `value` is one of `values()`.
  Lifetime lifetime(mlir::Value value) const { return lifetimes.lookup(value); }
  /// The position of an op outside of fusions.
  int64_t position(mlir::Operation *op) const { return positions.lookup(op); }
  /// The position at which `use` no longer needs its value.
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
