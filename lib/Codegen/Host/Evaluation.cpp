//===- Evaluation.cpp - The part of a training step that its loss needs -------------------===//
// Marks the ops that the loss depends on, backwards from its output, through messages between stages and sums over
// microbatches. These ops form the function pc_evaluate, without gradients and updates.
//===-----------------------------------------------------------------------------===//
#include "Evaluation.h"
#include "pc/IR/Stages.h"

using namespace mlir;
using namespace pc;

/// Starts at the outputs of kind loss (in a program that generates, at the tokens generated after prompts), and follows
/// operands backwards, also through messages to other stages.
Evaluation::Evaluation(ArrayRef<ModuleOp> programs) {
  for (ModuleOp program : programs)
    program.walk(
        [&](SendOp send) { sends[{stageOf(program), send.getStage(), send.getFlow(), send.getMessage()}] = send; });
  for (ModuleOp program : programs)
    program.walk([&](OutputOp output) {
      bool isGenerated = output.getKind() == OutputKind::Generated && !output.getName().contains('.');
      if (output.getKind() == OutputKind::Loss || isGenerated)
        add(output);
    });
  while (!open.empty()) {
    Operation *op = open.pop_back_val();
    if (!isa<StartOp, WaitOp>(op)) // for these, single moves are added instead
      llvm::for_each(op->getOperands(), [&](Value value) { addValue(value); });
    if (auto loop = dyn_cast<AccumulateOp>(op->getParentOp()))
      add(loop);
    // A needed message needs its send, which is in another stage's program.
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

/// The ops that compute `value`; for a sum over microbatches, the ops that compute its addends.
void Evaluation::addValue(Value value) {
  auto result = dyn_cast<OpResult>(value);
  if (!result) // an argument of a loop's body; the loop is added for the op that reads it
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

/// Adds the markers of the tasks that contain a needed op.
void Evaluation::addTasks(ModuleOp program) {
  program.walk([&](TaskOp task) {
    for (Operation *op = task->getNextNode(); op && !isa<TaskOp>(op); op = op->getNextNode())
      if (needs(op)) {
        ops.insert(task);
        return;
      }
  });
}
