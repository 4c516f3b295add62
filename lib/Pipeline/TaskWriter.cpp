//===- TaskWriter.cpp - Tasks of a stage as functions --------------------------------------===//
// Input: the ops of each task (StepTasks). Result: one private function per kind and chunk, which every microbatch
// calls. The arguments of a function are its operands and the sums so far; its results are the values that later tasks
// read and the new sums. A function for the first microbatch has no arguments for sums.
//===-----------------------------------------------------------------------------===//
#include "TaskWriter.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace pc;
using namespace pc::pipeline;

/// Records for each task which addends of the accumulation it computes.
TaskWriter::TaskWriter(ModuleOp module, AccumulateOp accumulate, const StepTasks &tasks)
    : module(module), accumulate(accumulate), tasks(tasks) {
  for (unsigned yielded = 0, e = accumulate.getNumResults(); yielded < e; ++yielded)
    for (const StepTasks::Addend &addend : tasks.addends(yielded)) {
      addends.insert({addend.value.getDefiningOp(), {yielded, &addend}});
      yieldedBy[{addend.kind, addend.chunk}].push_back(yielded);
    }
}

/// Finds the live ops, backwards from values that are summed, used outside, or read by later tasks of the chunk or by
/// other chunks.
const TaskWriter::Live &TaskWriter::live(TaskKind kind, int chunk) {
  auto [it, isNew] = lives.try_emplace({kind, chunk});
  Live &result = it->second;
  if (!isNew)
    return result;
  Values needed;
  needed.insert(tasks.handedOn(kind, chunk).begin(), tasks.handedOn(kind, chunk).end());
  // Values that later tasks of the chunk read must be kept, so they are live here.
  for (TaskKind later : {TaskKind::Recompute, TaskKind::Backward, TaskKind::Weight})
    if (later > kind)
      needed.insert(live(later, chunk).reads.begin(), live(later, chunk).reads.end());
  llvm::DenseSet<Operation *> own(tasks.ops(kind, chunk).begin(), tasks.ops(kind, chunk).end());
  llvm::DenseSet<Value> inside;
  // The search continues at the operands of repeated ops, since every task computes these ops itself.
  std::function<void(Value)> read = [&](Value value) {
    Operation *op = value.getDefiningOp();
    if (value.getParentBlock() != &accumulate.getBody().front())
      return;
    if (op && own.contains(op))
      inside.insert(value);
    else if (op && tasks.isMadeAgain(op))
      llvm::for_each(op->getOperands(), read);
    else if (op)
      result.reads.insert(value);
  };
  for (Operation *op : llvm::reverse(tasks.ops(kind, chunk))) {
    bool matters = !wouldOpBeTriviallyDead(op) || addends.count(op) || llvm::any_of(op->getResults(), [&](Value value) {
      return needed.contains(value) || inside.contains(value);
    });
    if (!matters)
      continue;
    result.ops.push_back(op);
    llvm::for_each(op->getOperands(), read);
    for (Value value : op->getResults())
      if (needed.contains(value))
        result.made.insert(value);
  }
  std::reverse(result.ops.begin(), result.ops.end());
  for (Value value : tasks.handedOn(kind, chunk)) // an earlier task may have computed it, also for forward values
    if (!own.contains(value.getDefiningOp()))
      read(value);
  return result;
}

/// Functions differ in the sums that exist already, so the first microbatch has a separate function.
const WrittenTask &TaskWriter::get(TaskKind kind, int chunk, llvm::function_ref<bool(unsigned)> hasSum) {
  std::vector<bool> sums;
  for (unsigned yielded : yieldedBy[{kind, chunk}])
    sums.push_back(hasSum(yielded));
  auto [it, isNew] = written.try_emplace({kind, chunk, sums});
  if (isNew) {
    std::string name = stringifyTaskKind(kind).str() + std::to_string(chunk);
    if (llvm::is_contained(sums, false)) // a chunk has one such function, for its first microbatch
      name += "_first";
    for (std::string base = name; module.lookupSymbol(name);)
      name = base + "_" + std::to_string(written.size());
    it->second = write(kind, chunk, name, hasSum);
  }
  return it->second;
}

/// Writes a private function with the live ops of a task. Its arguments are values that they read from elsewhere. Its
/// results are values that others read, and the sums so far plus the task's addends.
WrittenTask TaskWriter::write(TaskKind kind, int chunk, StringRef name, llvm::function_ref<bool(unsigned)> hasSum) {
  const Live &part = live(kind, chunk);
  WrittenTask task;
  if (part.ops.empty())
    return task;
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  Location loc = part.ops.front()->getLoc();
  task.function = func::FuncOp::create(builder, loc, name, builder.getFunctionType({}, {}));
  task.function.setPrivate();
  Block *block = task.function.addEntryBlock();
  builder.setInsertionPointToStart(block);
  IRMapping values;
  auto argument = [&](WrittenTask::Input input, Type type, Location at) {
    task.inputs.push_back(input);
    return block->addArgument(type, at);
  };
  auto clone = [&](Operation *op) { builder.clone(*op, values); };
  // A value from elsewhere becomes an argument. Ops that every task repeats are cloned here instead.
  std::function<void(Value)> read = [&](Value value) {
    if (values.contains(value))
      return;
    Operation *op = value.getDefiningOp();
    bool ofBody = value.getParentBlock() == &accumulate.getBody().front();
    if (ofBody && op && tasks.isMadeAgain(op)) {
      llvm::for_each(op->getOperands(), read);
      clone(op);
    } else {
      values.map(value, argument({value}, value.getType(), value.getLoc()));
    }
  };
  SmallVector<Value> results;
  auto resultOf = [&](Value value) {
    auto known = llvm::find(results, value);
    if (known == results.end()) {
      results.push_back(value);
      return static_cast<int>(results.size()) - 1;
    }
    return static_cast<int>(known - results.begin());
  };
  // `sums` has, for each sum, the addends of this task so far, and `missing` the number of addends still to come.
  llvm::MapVector<unsigned, Value> sums;
  llvm::DenseMap<unsigned, int> missing;
  for (Operation *op : part.ops)
    for (auto [at, last] = addends.equal_range(op); at != last; ++at)
      ++missing[at->second.first];
  for (Operation *op : part.ops) {
    llvm::for_each(op->getOperands(), read);
    clone(op);
    // Gradients and the loss are added to their sums as soon as they are computed.
    auto [first, last] = addends.equal_range(op);
    for (const auto &[yielded, addend] :
         llvm::map_range(llvm::make_range(first, last), [](auto &x) { return x.second; })) {
      Value value = values.lookup(addend->value);
      for (Operation *through : addend->through) {
        IRMapping mapping;
        mapping.map(through->getOperand(0), value);
        value = builder.clone(*through, mapping)->getResult(0);
      }
      auto add = [&](Value a) {
        return a ? AddOp::create(builder, value.getLoc(), value.getType(), a, value).getResult() : value;
      };
      Value &sum = sums[yielded];
      sum = value = add(sum);
      // The sum so far is added after all of the task's addends, so it is read once.
      if (--missing[yielded] == 0 && hasSum(yielded))
        sum = add(argument({{}, static_cast<int>(yielded)}, value.getType(), value.getLoc()));
    }
  }
  for (Value value : part.made)
    task.made.push_back({value, resultOf(values.lookup(value))});
  for (auto [yielded, sum] : sums)
    task.summed.push_back({yielded, resultOf(sum)});
  func::ReturnOp::create(builder, loc, results);
  task.function.setType(builder.getFunctionType(block->getArgumentTypes(), ValueRange(results).getTypes()));
  return task;
}
