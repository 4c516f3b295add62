//===- Readers.h - Values of their own for the readers in each pass --------------------------===//
// A value that the forward pass and the backward pass read can be gathered, decoded or copied separately for each.
//===-----------------------------------------------------------------------------===//
#ifndef PC_IR_READERS_H
#define PC_IR_READERS_H

#include "pc/IR/PC.h"

#include "mlir/IR/Builders.h"

namespace pc {

/// Gives the readers of `value` in the forward pass a value that `make` builds before the first of them, and the
/// readers in the backward pass another one. Both passes are in the accumulation. Returns the built values.
inline llvm::SmallVector<mlir::Value> separateReaders(mlir::Value value,
                                                      llvm::function_ref<mlir::Value(mlir::OpBuilder &)> make) {
  llvm::SmallVector<mlir::Value> made;
  for (StepPhase phase : {StepPhase::Forward, StepPhase::Backward}) {
    llvm::SmallVector<mlir::OpOperand *> uses;
    mlir::Operation *first = nullptr;
    for (mlir::OpOperand &use : value.getUses()) {
      mlir::Operation *reader = use.getOwner();
      if (!mlir::isa<AccumulateOp>(reader->getParentOp()) || mlir::isa<YieldOp>(reader) || stepPhase(reader) != phase)
        continue;
      uses.push_back(&use);
      if (!first || reader->isBeforeInBlock(first))
        first = reader;
    }
    if (uses.empty())
      continue;
    mlir::OpBuilder builder(first);
    made.push_back(make(builder));
    for (mlir::OpOperand *use : uses)
      use->set(made.back());
  }
  return made;
}

} // namespace pc

#endif // PC_IR_READERS_H
