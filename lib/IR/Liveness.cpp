//===- Liveness.cpp - How long the values of a step are needed -----------------------===//
// Positions number the ops of a step, those of an accumulation's body included. A value lives from the op that writes
// it to the last one that reads it. Three rules extend this: leaves are always live; values that a repeated body reads
// from outside live until the body's end; and operands of a move in flight live until its wait.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/Liveness.h"

using namespace mlir;
using namespace pc;

int64_t pc::byteSize(Type tensor) {
  auto type = rowsOf(tensor) ? storedType(tensor) : cast<RankedTensorType>(tensor);
  return llvm::divideCeil(type.getNumElements() * type.getElementTypeBitWidth(), 8);
}

bool pc::isLeaf(Operation *op) {
  return isa<ParameterOp, StateOp, InputOp, RopeTableOp, ConstantOp, BlockOffsetOp>(op);
}

Operation *pc::addedAfter(OpOperand &use) {
  Operation *user = use.getOwner(), *source = use.get().getDefiningOp();
  auto accumulate = isa<YieldOp>(user) ? dyn_cast_or_null<AccumulateOp>(user->getParentOp()) : AccumulateOp();
  bool made = accumulate && source && source->getBlock() == user->getBlock() && !isLeaf(source);
  return made && accumulate.getMicrobatches() > 1 ? source : nullptr;
}

/// Ops in the body of an accumulation get the positions after it. Views of a stack and tickets have no buffers.
void Liveness::number(Block &block) {
  for (Operation &op : block) {
    positions[&op] = numPositions++;
    if (isa<MicrobatchOp>(op)) // a view of its stack
      continue;
    for (Value result : op.getResults())
      if (!isa<TicketType>(result.getType()))
        order.push_back(result);
    if (auto accumulate = dyn_cast<AccumulateOp>(op))
      number(accumulate.getBody().front());
  }
}

/// A use inside a body that repeats counts at the end of the body. A use by a start counts at its wait.
int64_t Liveness::position(OpOperand &use) const {
  if (Operation *source = addedAfter(use))
    return position(source);
  Operation *user = use.getOwner();
  Operation *last = isa<AccumulateOp>(user) ? user : nullptr;
  Block *block = use.get().getParentBlock();
  for (Operation *op = user; op && op->getBlock() != block; op = op->getParentOp())
    if (isa_and_nonnull<AccumulateOp>(op->getParentOp()))
      last = op->getParentOp(); // used by a body that repeats
  if (last)
    return position(last->getRegion(0).front().getTerminator());
  auto start = dyn_cast<StartOp>(user); // the moves read until they have been waited for
  WaitOp wait = start ? start.getWait() : WaitOp();
  return position(wait ? wait : user);
}

/// Each value lives until the last position of its uses; the rules in Liveness.h extend this.
Liveness::Liveness(Block &body) {
  number(body);
  lifetimes.reserve(order.size());
  for (Value value : order) {
    Operation *op = value.getDefiningOp();
    Lifetime life{position(op), position(op)};
    if (isLeaf(op)) {
      life = {0, numPositions - 1};
    } else {
      if (auto accumulate = dyn_cast<AccumulateOp>(op)) {
        life.last = position(accumulate.getBody().front().getTerminator());
        // With one microbatch nothing is summed: the result is written once, at the end of the body.
        if (accumulate.getMicrobatches() == 1)
          life.first = life.last;
      }
      if (auto wait = dyn_cast<WaitOp>(op))
        if (StartOp start = wait.getStart())
          life.first = position(start);
      for (OpOperand &use : value.getUses())
        life.last = isa<MicrobatchOp>(use.getOwner()) ? numPositions - 1 : std::max(life.last, position(use));
    }
    lifetimes[value] = life;
  }
}
