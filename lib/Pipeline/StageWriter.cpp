//===- StageWriter.cpp - The program of one stage ------------------------------------------===//
// Input: the step with its accumulation (StageWriter::Step) and the instructions of one stage. Result: the module of
// that stage, which has leaves, receives, calls of tasks, sends, sums over chunks and the optimizer. Only values that
// the stage uses are copied.
//===-----------------------------------------------------------------------------===//
#include "StageWriter.h"
#include "pc/IR/Calls.h"
#include "pc/IR/Parts.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace pc;
using namespace pc::pipeline;

/// The module of a stage, with only the attributes that all programs have.
static ModuleOp newModule(ModuleOp whole, func::FuncOp step, int stage) {
  OpBuilder builder = OpBuilder::atBlockEnd(whole.getBody());
  ModuleOp module = ModuleOp::create(builder, step.getLoc(), "stage" + std::to_string(stage));
  module->setAttr("pc.stage", builder.getI64IntegerAttr(stage));
  builder.setInsertionPointToStart(module.getBody());
  for (Operation &op : *whole.getBody())
    if (isa<MeshOp, ProgramOp, PlanOp>(op))
      builder.clone(op);
  return module;
}

StageModule::StageModule(ModuleOp whole, func::FuncOp step, int stage, int slots)
    : builder(whole.getContext()), number(stage), slots(slots), module(newModule(whole, step, stage)) {
  builder.setInsertionPointToEnd(module.getBody());
  function = func::FuncOp::create(builder, step.getLoc(), step.getName(), builder.getFunctionType({}, {}));
  builder.setInsertionPointToStart(function.addEntryBlock());
}

StageWriter::StageWriter(Step &step, int stage)
    : StageModule(step.module, step.function, stage, step.slots), step(step), values(step.problem.microbatches),
      functions(module, step.accumulate, step.tasks) {}

void pc::pipeline::numberParameters(func::FuncOp step) {
  int64_t key = 0;
  for (auto parameter : step.getOps<ParameterOp>()) {
    parameter.setKey(key);
    key += numParts(parameter);
  }
}

void pc::pipeline::keepStages(ModuleOp module, StringAttr axis) {
  for (Operation &op : llvm::make_early_inc_range(*module.getBody()))
    if (!isa<ModuleOp>(op))
      op.erase();
  module->setAttr("pc.stage_axis", axis);
}

Value StageModule::outside(Value value) {
  // A value from outside of the body is cloned once, with the ops that compute it. finish() moves the clones to the
  // front, in order.
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

/// Values of the body are results of tasks or arguments. An argument is one microbatch's part of a stack.
Value StageWriter::read(Value value, int microbatch) {
  Block &body = step.accumulate.getBody().front();
  if (value.getParentBlock() != &body)
    return outside(value);
  if (Value known = values[microbatch].lookup(value))
    return known;
  auto argument = cast<BlockArgument>(value); // results of tasks are already known, because tasks are written in order
  Value stack = outside(step.accumulate.getInputs()[argument.getArgNumber()]);
  return values[microbatch][value] = MicrobatchOp::create(builder, stack.getLoc(), value.getType(), stack, microbatch);
}

void StageModule::send(Location loc, Value value, int to, int flow, int message) {
  SendOp::create(builder, loc, value, to, flow, message, slots);
}

Value StageModule::receive(Location loc, Type type, int from, int flow, int message) {
  return ReceiveOp::create(builder, loc, type, from, flow, message, slots);
}

void StageWriter::sendAll(const Task &message, int to) {
  for (auto [i, value] : llvm::enumerate(step.tasks.handedOn(message.kind, message.chunk)))
    send(value.getLoc(), read(value, message.microbatch), to,
         step.flows.of(number, to, letterOf(message.kind), message.chunk, i), message.microbatch);
}

/// Writes one receive for each value that the task passes on.
void StageWriter::receiveAll(const Task &message, int microbatch, int from) {
  for (auto [i, value] : llvm::enumerate(step.tasks.handedOn(message.kind, message.chunk)))
    values[microbatch][value] =
        receive(value.getLoc(), value.getType(), from,
                step.flows.of(from, number, letterOf(message.kind), message.chunk, i), microbatch);
}

/// Tasks add gradients and the loss to sums. Each chunk has its own sums, so that additions are in the order of the
/// microbatches in every schedule.
void StageWriter::writeTask(const Task &task) {
  const WrittenTask &written = functions.get(
      task.kind, task.chunk, [&](unsigned yielded) { return sumsOfChunks.count({yielded, task.chunk}) > 0; });
  if (!written.function)
    return;
  SmallVector<Value> inputs;
  for (const WrittenTask::Input &input : written.inputs)
    inputs.push_back(input.value ? read(input.value, task.microbatch) : sumsOfChunks.at({input.yielded, task.chunk}));
  func::FuncOp callee = written.function;
  auto call =
      CallOp::create(builder, callee.getLoc(), callee.getResultTypes(), callee.getName(), inputs, IntegerAttr());
  for (auto [value, result] : written.made)
    values[task.microbatch][value] = call.getResult(result);
  for (auto [yielded, result] : written.summed)
    sumsOfChunks[{yielded, task.chunk}] = call.getResult(result);
}

/// Writes the tasks and messages in the program's order, then begins the optimizer's task.
void StageWriter::writeTasks(const std::vector<Instruction> &instructions) {
  SmallVector<const Part *> received;
  for (const Instruction &instruction : instructions) {
    for (const Part &part : instruction.parts)
      if (part.send)
        sendAll(part.message, part.flow.destination);
      else
        received.push_back(&part);
    if (instruction.type != Instruction::Compute)
      continue;
    const Task &task = instruction.task;
    TaskOp::create(builder, step.accumulate.getLoc(), task.kind, builder.getI64IntegerAttr(task.chunk),
                   builder.getI64IntegerAttr(task.microbatch));
    for (const Part *part : received) // values arrive in the task that reads them
      receiveAll(part->message, task.microbatch, part->flow.source);
    received.clear();
    writeTask(task);
  }
  TaskOp::create(builder, step.accumulate.getLoc(), TaskKind::Optimizer, nullptr, nullptr);
  // If several chunks of the stage read a parameter, its gradient is the sum of their gradients.
  for (auto &[key, value] : sumsOfChunks) { // by chunk, ascending
    Value &sum = sums[key.first];
    sum = sum ? AddOp::create(builder, value.getLoc(), value.getType(), sum, value).getResult() : value;
  }
}

/// Leaves and other values from outside get the order that they had in the step. Values that the optimizer carries to
/// the device, and values computed from its states, come after the tasks, because the tasks need the memory; except
/// those that tasks read.
void StageModule::finish() {
  func::ReturnOp::create(builder, function.getLoc());
  Block &block = function.getBody().front();
  llvm::sort(header, [](const auto &a, const auto &b) { return a.first->isBeforeInBlock(b.first); });
  auto tasks = block.getOps<TaskOp>();
  auto optimizer = llvm::find_if(tasks, [](TaskOp task) { return task.getKind() == TaskKind::Optimizer; });
  llvm::DenseSet<Operation *> late, early, clones; // early: tasks read them
  for (auto &[original, clone] : header)
    clones.insert(clone);
  for (auto &[original, clone] : llvm::reverse(header))
    if (optimizer != tasks.end() && llvm::any_of(clone->getUsers(), [&](Operation *user) {
          return clones.contains(user) ? early.contains(user) : user->isBeforeInBlock(*optimizer);
        }))
      early.insert(clone);
  for (auto &[original, clone] : header)
    if (optimizer != tasks.end() && !early.contains(clone) &&
        ((isa<CarryOp>(original) && stepPhase(original) == StepPhase::Optimizer) ||
         llvm::any_of(clone->getOperands(), [&](Value operand) {
           auto state = operand.getDefiningOp<StateOp>();
           return (state && !state.getCache()) || late.contains(operand.getDefiningOp());
         })))
      late.insert(clone);
  for (auto &[original, clone] : llvm::reverse(header))
    if (late.contains(clone))
      clone->moveAfter(*optimizer);
    else
      clone->moveBefore(&block, block.begin());
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      op.erase();
}

/// The ops of a called function count once per call.
int64_t StageWriter::numOps() {
  auto opsOf = [](func::FuncOp function) {
    int64_t ops = 0;
    function.walk([&](Operation *) { ++ops; });
    return ops;
  };
  TaskFunctions known;
  llvm::DenseMap<Operation *, int64_t> ops;
  int64_t sum = opsOf(function);
  for (auto call : function.getOps<CallOp>()) {
    func::FuncOp callee = known.of(call).function;
    auto [it, first] = ops.try_emplace(callee, 0);
    if (first)
      it->second = opsOf(callee);
    sum += it->second;
  }
  return sum;
}
