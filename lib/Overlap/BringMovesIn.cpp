//===- BringMovesIn.cpp - Moves into the one microbatch of a step ----------------------===//
// The step is rebuilt around the moves: `accumulate` gets the results of moves in the body in place of its own, and the
// moves after it go.
//===-----------------------------------------------------------------------------===//
#include "BringMovesIn.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace pc;

/// Moves gathers of stored tensors whose results only the body reads to the front of the body: there they are waited
/// for one by one.
static void bringGathersIn(AccumulateOp accumulate) {
  Block &body = accumulate.getBody().front();
  for (Operation *op = accumulate->getPrevNode(); op;) {
    Operation *gather = std::exchange(op, op->getPrevNode());
    if (isa<AllGatherOp>(gather) &&
        llvm::all_of(gather->getUsers(), [&](Operation *user) { return body.findAncestorOpInBlock(*user) != nullptr; }))
      gather->moveBefore(&body, body.begin());
  }
}

void pc::bringMovesIn(AccumulateOp accumulate) {
  if (accumulate.getMicrobatches() != 1)
    return;
  bringGathersIn(accumulate);
  Operation *yield = accumulate.getBody().front().getTerminator();
  OpBuilder inside(yield);
  SmallVector<Value> outer(accumulate.getResults()); // per result: the value outside of the body that it replaces
  SmallVector<Operation *> moved;
  for (auto [i, value] : llvm::enumerate(outer)) {
    // A chain of moves comes in as a whole; other readers would need the value from in between.
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
