//===- StageWriter.cpp - The program of one stage ------------------------------------------===//
#include "StageWriter.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace pc;
using namespace pc::pipeline;

static TaskKind taskKind(Kind kind) {
  switch (kind) {
  case Kind::F:
    return TaskKind::Forward;
  case Kind::R:
    return TaskKind::Recompute;
  case Kind::B:
    return TaskKind::Backward;
  case Kind::W:
    return TaskKind::Weight;
  }
  return TaskKind::Forward;
}

StageWriter::StageWriter(Step &step, int stage)
    : builder(step.module.getContext()), step(step), number(stage), values(step.problem.microbatches) {
  Location loc = step.function.getLoc();
  builder.setInsertionPointToEnd(step.module.getBody());
  module = ModuleOp::create(builder, loc, "stage" + std::to_string(stage));
  module->setAttr("pc.stage", builder.getI64IntegerAttr(stage));
  builder.setInsertionPointToStart(module.getBody());
  for (Operation &op : *step.module.getBody())
    if (isa<MeshOp, ProgramOp, PlanOp>(op))
      builder.clone(op);
  function = func::FuncOp::create(builder, loc, step.function.getName(), builder.getFunctionType({}, {}));
  builder.setInsertionPointToStart(function.addEntryBlock());
  for (unsigned yielded = 0, e = step.accumulate.getNumResults(); yielded < e; ++yielded)
    for (const StepTasks::Addend &addend : step.tasks.addends(yielded))
      summed.insert({addend.value.getDefiningOp(), {yielded, &addend}});
}

Value StageWriter::outside(Value value) {
  if (Value known = leaves.lookup(value))
    return known;
  Operation *op = value.getDefiningOp();
  IRMapping mapping;
  for (Value operand : op->getOperands())
    mapping.map(operand, outside(operand));
  OpBuilder top = OpBuilder::atBlockBegin(&function.getBody().front());
  Operation *clone = top.clone(*op, mapping);
  header.push_back({op, clone});
  for (auto [original, result] : llvm::zip_equal(op->getResults(), clone->getResults()))
    leaves[original] = result;
  return leaves.lookup(value);
}

Value StageWriter::read(Value value, int microbatch) {
  Block &body = step.accumulate.getBody().front();
  if (value.getParentBlock() != &body)
    return outside(value);
  if (Value known = values[microbatch].lookup(value))
    return known;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    Value stack = outside(step.accumulate.getInputs()[argument.getArgNumber()]);
    return values[microbatch][value] =
               MicrobatchOp::create(builder, stack.getLoc(), value.getType(), stack, microbatch);
  }
  // Made again, here where it is first read.
  Operation *op = value.getDefiningOp();
  IRMapping mapping;
  for (Value operand : op->getOperands())
    mapping.map(operand, read(operand, microbatch));
  Operation *clone = builder.clone(*op, mapping);
  for (auto [original, result] : llvm::zip_equal(op->getResults(), clone->getResults()))
    values[microbatch][original] = result;
  return values[microbatch][value];
}

void StageWriter::send(Location loc, Value value, int to, int flow, int message) {
  SendOp::create(builder, loc, value, to, flow, message, step.slots);
}

Value StageWriter::receive(Location loc, Type type, int from, int flow, int message) {
  return ReceiveOp::create(builder, loc, type, from, flow, message, step.slots);
}

void StageWriter::sendAll(const Task &message, int to) {
  for (auto [i, value] : llvm::enumerate(step.tasks.handedOn(message.kind, message.chunk)))
    send(value.getLoc(), read(value, message.microbatch), to,
         step.flows.of(number, to, "FRBW"[static_cast<int>(message.kind)], message.chunk, i), message.microbatch);
}

void StageWriter::receiveAll(const Task &message, int microbatch, int from) {
  for (auto [i, value] : llvm::enumerate(step.tasks.handedOn(message.kind, message.chunk)))
    values[microbatch][value] =
        receive(value.getLoc(), value.getType(), from,
                step.flows.of(from, number, "FRBW"[static_cast<int>(message.kind)], message.chunk, i), microbatch);
}

/// Gradients and the loss join their sums as soon as they are there. Each chunk has its own, so that the order of
/// additions is that of the microbatches whatever the schedule.
void StageWriter::addUp(Operation *op, const Task &task) {
  auto [first, last] = summed.equal_range(op);
  for (const auto &[yielded, addend] :
       llvm::map_range(llvm::make_range(first, last), [](auto &x) { return x.second; })) {
    Value value = read(addend->value, task.microbatch);
    for (Operation *op : addend->through) {
      IRMapping mapping;
      mapping.map(op->getOperand(0), value);
      value = builder.clone(*op, mapping)->getResult(0);
    }
    Value &sum = sumsOfChunks[{yielded, task.chunk}];
    sum = sum ? AddOp::create(builder, value.getLoc(), value.getType(), sum, value).getResult() : value;
  }
}

void StageWriter::writeTask(const Task &task) {
  for (Operation *op : step.tasks.ops(task.kind, task.chunk)) {
    IRMapping mapping;
    for (Value operand : op->getOperands())
      mapping.map(operand, read(operand, task.microbatch));
    Operation *clone = builder.clone(*op, mapping);
    for (auto [original, result] : llvm::zip_equal(op->getResults(), clone->getResults()))
      values[task.microbatch][original] = result;
    addUp(op, task);
  }
}

void StageWriter::writeTasks(const std::vector<Instruction> &instructions) {
  SmallVector<const Part *> received;
  for (const Instruction &instruction : instructions) {
    for (const Part &part : instruction.parts)
      if (part.send)
        sendAll(part.message, part.channel.destination);
      else
        received.push_back(&part);
    if (instruction.type != Instruction::Compute)
      continue;
    const Task &task = instruction.task;
    TaskOp::create(builder, step.accumulate.getLoc(), taskKind(task.kind), builder.getI64IntegerAttr(task.chunk),
                   builder.getI64IntegerAttr(task.microbatch));
    for (const Part *part : received) // what a task reads arrives in it
      receiveAll(part->message, task.microbatch, part->channel.source);
    received.clear();
    writeTask(task);
  }
  TaskOp::create(builder, step.accumulate.getLoc(), TaskKind::Optimizer, nullptr, nullptr);
  for (auto &[key, value] : sumsOfChunks) { // by chunk, ascending
    Value &sum = sums[key.first];
    sum = sum ? AddOp::create(builder, value.getLoc(), value.getType(), sum, value).getResult() : value;
  }
}

void StageWriter::finish() {
  func::ReturnOp::create(builder, function.getLoc());
  Block &block = function.getBody().front();
  llvm::sort(header, [](const auto &a, const auto &b) { return a.first->isBeforeInBlock(b.first); });
  for (auto &[original, clone] : llvm::reverse(header))
    clone->moveBefore(&block, block.begin());
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      op.erase();
}
