//===- Evaluation.cpp - The part of a training step that its loss needs -------------------===//
#include "Evaluation.h"
#include "pc/IR/Stages.h"

using namespace mlir;
using namespace pc;

Evaluation::Evaluation(ArrayRef<ModuleOp> programs) {
  for (ModuleOp program : programs)
    program.walk(
        [&](SendOp send) { sends[{stageOf(program), send.getStage(), send.getFlow(), send.getMessage()}] = send; });
  for (ModuleOp program : programs)
    program.walk([&](OutputOp output) {
      if (output.getKind() == OutputKind::Loss)
        add(output);
    });
  while (!open.empty()) {
    Operation *op = open.pop_back_val();
    if (!isa<StartOp, WaitOp>(op)) // of which single moves are needed
      llvm::for_each(op->getOperands(), [&](Value value) { addValue(value); });
    if (auto loop = dyn_cast<AccumulateOp>(op->getParentOp()))
      add(loop);
    if (auto receive = dyn_cast<ReceiveOp>(op))
      if (auto send = sends.find(
              {receive.getStage(), stageOf(op->getParentOfType<ModuleOp>()), receive.getFlow(), receive.getMessage()});
          send != sends.end())
        add(send->second);
  }
  llvm::for_each(programs, [&](ModuleOp program) { addTasks(program); });
}

void Evaluation::add(Operation *op) {
  if (ops.insert(op).second)
    open.push_back(op);
}

/// The ops that make `value`; of a sum over microbatches, those that make its addends.
void Evaluation::addValue(Value value) {
  auto result = dyn_cast<OpResult>(value);
  if (!result) // of a loop's body, which is there for an op in it
    return;
  add(result.getOwner());
  if (auto wait = dyn_cast<WaitOp>(result.getOwner())) {
    add(wait.getStart());
    OpOperand &input = wait.getStart()->getOpOperand(result.getResultNumber());
    if (moved.insert(&input).second)
      addValue(input.get());
  }
  auto loop = dyn_cast<AccumulateOp>(result.getOwner());
  if (!loop)
    return;
  OpOperand &yielded = loop.getBody().front().getTerminator()->getOpOperand(result.getResultNumber());
  if (sums.insert(&yielded).second)
    addValue(yielded.get());
}

bool Evaluation::needsAll(StartOp start) const {
  return llvm::all_of(start->getOpOperands(), [&](OpOperand &input) { return moved.contains(&input); });
}

/// Tasks that something is left of.
void Evaluation::addTasks(ModuleOp program) {
  program.walk([&](TaskOp task) {
    for (Operation *op = task->getNextNode(); op && !isa<TaskOp>(op); op = op->getNextNode())
      if (needs(op)) {
        ops.insert(task);
        return;
      }
  });
}

bool pc::drops(Operation *op) {
  auto drawn = dyn_cast<DrawnOpInterface>(op);
  if (drawn && drawn.getDropAttr())
    return true;
  auto fusion = dyn_cast<FusionOp>(op);
  return fusion && llvm::any_of(fusion.getBody().front(), [](Operation &inner) { return drops(&inner); });
}

/// What stands for a dropout that drops nothing: a product by one, which is exact.
static ScaleOp keepAll(OpBuilder &b, DropoutOp dropout) {
  return ScaleOp::create(b, dropout.getLoc(), dropout.getResult().getType(), dropout.getX(), b.getF64FloatAttr(1));
}

OwningOpRef<Operation *> pc::withoutDropping(Operation *op) {
  if (auto dropout = dyn_cast<DropoutOp>(op)) {
    OpBuilder b(op->getContext());
    return keepAll(b, dropout).getOperation();
  }
  OwningOpRef<Operation *> copy = op->clone();
  copy.get()->walk([](Operation *inner) {
    if (auto attention = dyn_cast<AttentionOp>(inner)) {
      attention.removeDropAttr();
      attention.getRandomMutable().clear();
      attention.getOffsetsMutable().clear();
    } else if (auto dropout = dyn_cast<DropoutOp>(inner)) {
      OpBuilder b(dropout);
      dropout.getResult().replaceAllUsesWith(keepAll(b, dropout).getResult());
      dropout.erase();
    }
  });
  return copy;
}
