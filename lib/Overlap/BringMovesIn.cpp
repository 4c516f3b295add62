//===- BringMovesIn.cpp - Moves of gradients into the backward pass -------------------===//
#include "BringMovesIn.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace pc;

void pc::bringMovesIn(AccumulateOp accumulate) {
  if (accumulate.getMicrobatches() != 1)
    return;
  Operation *yield = accumulate.getBody().front().getTerminator();
  OpBuilder inside(yield);
  SmallVector<Value> outer(accumulate.getResults()); // per result: the value outside of the body that it replaces
  SmallVector<Operation *> moved;
  for (auto [i, value] : llvm::enumerate(outer)) {
    while (value.hasOneUse() && isa<MoveOpInterface>(*value.user_begin()) &&
           value.user_begin()->getBlock() == accumulate->getBlock()) {
      Operation *move = *value.user_begin();
      Operation *clone = inside.clone(*move);
      clone->setOperand(0, yield->getOperand(i));
      yield->setOperand(i, clone->getResult(0));
      moved.push_back(move);
      value = move->getResult(0);
    }
  }
  if (moved.empty())
    return;
  OperationState state(accumulate.getLoc(), AccumulateOp::getOperationName());
  state.addOperands(accumulate.getInputs());
  state.addTypes(TypeRange(yield->getOperandTypes()));
  state.addRegion()->takeBody(accumulate.getBody());
  Operation *rewritten = OpBuilder(accumulate).create(state);
  for (auto [value, result] : llvm::zip_equal(outer, rewritten->getResults()))
    value.replaceAllUsesWith(result);
  for (Operation *move : llvm::reverse(moved))
    move->erase();
  accumulate.erase();
}
