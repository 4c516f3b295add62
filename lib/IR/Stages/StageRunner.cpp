//===- StageRunner.cpp - Runs the programs of all stages together --------------------------===//
// Runs one block per stage as a cooperative scheduler: each stage runs until it waits for a message, a free slot, or
// other stages at a collective over the stages. The order does not depend on time, and the run ends when no stage can
// continue; a stage that is not at its end is then in a deadlock, which callers find with `waitingAt`.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/StageRunner.h"
#include "pc/IR/Stages.h"

using namespace mlir;
using namespace pc;

/// Repeats over all stages until no stage can run another op.
LogicalResult StageRunner::run(ArrayRef<Block *> programs, Visitor &visitor) {
  for (Block *program : programs)
    at.push_back(&program->front());
  for (bool progress = true; progress;) {
    progress = false;
    for (auto [stage, next] : llvm::enumerate(at))
      for (; next && canRun(static_cast<int>(stage), next, visitor); next = next->getNextNode(), progress = true) {
        if (failed(visitor.visit(static_cast<int>(stage), next)))
          return failure();
        if (auto send = dyn_cast<SendOp>(next))
          ++underWay[StageFlow(stage, send)];
        else if (auto receive = dyn_cast<ReceiveOp>(next))
          --underWay[StageFlow(stage, receive)];
      }
  }
  return success();
}

/// Returns true if `op` can run without waiting for another stage. If it is a collective, records that the stage has
/// reached it.
bool StageRunner::canRun(int stage, Operation *op, Visitor &visitor) {
  if (auto send = dyn_cast<SendOp>(op))
    return underWay[StageFlow(stage, send)] < send.getSlots();
  if (auto receive = dyn_cast<ReceiveOp>(op))
    return underWay[StageFlow(stage, receive)] > 0;
  if (auto move = dyn_cast<MoveOpInterface>(op); move && isOverStages(move, axis)) {
    arrive(stage, move, op->getOperand(0), visitor);
    return isComplete(move);
  }
  // The stage arrives at a started collective here and waits for it only at its pc.wait, so pc.start never blocks.
  if (auto start = dyn_cast<StartOp>(op))
    for (auto [move, input] : llvm::zip_equal(start.getMoves(), start.getInputs()))
      if (isOverStages(move, axis))
        arrive(stage, move, input, visitor);
  if (auto wait = dyn_cast<WaitOp>(op))
    return llvm::all_of(wait.getStart().getMoves(),
                        [&](MoveOpInterface move) { return !isOverStages(move, axis) || isComplete(move); });
  return true;
}

/// The n-th call of a stage over some axes belongs to the n-th call of every other stage over them.
void StageRunner::arrive(int stage, MoveOpInterface move, Value input, Visitor &visitor) {
  auto [it, first] = meetings.try_emplace(move, -1);
  if (!first)
    return;
  std::string axes;
  for (StringAttr name : move.getMoveAxes())
    axes += name.str() + ",";
  SmallVector<int> &list = meetingsOfAxes[axes];
  size_t call = calls[{stage, axes}]++;
  if (call == list.size()) {
    list.push_back(static_cast<int>(arrived.size()));
    arrived.push_back(0);
  }
  it->second = list[call];
  ++arrived[list[call]];
  visitor.arrive(stage, move, input, list[call]);
}

bool StageRunner::isComplete(MoveOpInterface move) const {
  int meeting = meetingOf(move);
  return meeting >= 0 && arrived[meeting] == static_cast<int>(at.size());
}

int StageRunner::meetingOf(MoveOpInterface move) const {
  auto it = meetings.find(move);
  return it == meetings.end() ? -1 : it->second;
}
