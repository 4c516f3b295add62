//===- BringMovesIn.cpp - Moves communication into the body of a single microbatch -----===//
// Moves are cloned into the body. `accumulate` then yields the results of the clones instead of the moves' operands,
// and the moves after `accumulate` are erased.
//===-----------------------------------------------------------------------------===//
#include "BringMovesIn.h"
#include "pc/IR/BlockCodes.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace pc;

/// Moves a gather of a stored tensor to the front of the body if only the body reads its result, so that each gather
/// can be waited for separately.
static void bringGathersIn(AccumulateOp accumulate) {
  Block &body = accumulate.getBody().front();
  for (Operation *op = accumulate->getPrevNode(); op;) {
    Operation *gather = std::exchange(op, op->getPrevNode());
    if (isa<AllGatherOp>(gather) &&
        llvm::all_of(gather->getUsers(), [&](Operation *user) { return body.findAncestorOpInBlock(*user) != nullptr; }))
      gather->moveBefore(&body, body.begin());
  }
}

/// Adds clones of the moves at the end of the body. Then builds the accumulation again, because the types of its
/// results change.
void pc::bringMovesIn(AccumulateOp accumulate) {
  // With several microbatches, the moves would run once per microbatch.
  if (accumulate.getMicrobatches() != 1)
    return;
  bringGathersIn(accumulate);
  Operation *yield = accumulate.getBody().front().getTerminator();
  OpBuilder inside(yield);
  SmallVector<Value> outer(accumulate.getResults()); // for each result, the value outside of the body that it replaces
  SmallVector<Operation *> moved;
  for (auto [i, value] : llvm::enumerate(outer)) {
    // A chain of moves is moved as a whole, unless another reader needs a value inside the chain.
    while (value.hasOneUse() && isa<MoveOpInterface, EncodeAddendOp, DecodeSumOp>(*value.user_begin()) &&
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
