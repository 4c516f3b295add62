//===- Buffers.cpp - Decides which values of a step share a home -------------------------===//
// Union-find over the values of a step. Values are joined only if a kernel may write a result over an operand
// (IR/Sharing.h) and nothing reads the old value later. Invariant: no op reads a value of a buffer after a later value
// of the buffer was written.
//===-----------------------------------------------------------------------------===//
#include "Buffers.h"
#include "pc/IR/Generation.h"
#include "pc/IR/LeavesByName.h"
#include "pc/IR/Sharing.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace pc;

unsigned Buffers::find(unsigned i) const {
  while (parent[i] != i)
    i = parent[i] = parent[parent[i]];
  return i;
}

unsigned Buffers::of(Value value) const { return find(number.lookup(value)); }

/// The group with the lower number keeps the data. Its live range becomes the union of both ranges.
void Buffers::join(unsigned a, unsigned b) {
  a = find(a), b = find(b);
  if (a == b)
    return;
  if (a > b)
    std::swap(a, b);
  parent[b] = a;
  buffers[a].values.append(buffers[b].values);
  buffers[a].life = {std::min(buffers[a].life.first, buffers[b].life.first),
                     std::max(buffers[a].life.last, buffers[b].life.last)};
  if (!buffers[a].leaf)
    buffers[a].leaf = buffers[b].leaf;
}

/// Begins with one buffer per value; then joins values that may share one.
Buffers::Buffers(Block &body, const Liveness &liveness, TaskFunctions &functions, ArrayRef<BlockArgument> dying)
    : liveness(liveness), functions(functions) {
  for (BlockArgument argument : body.getArguments()) {
    number[argument] = parent.size();
    parent.push_back(parent.size());
    buffers.push_back({{argument}, byteSize(argument.getType()), {0, liveness.size() - 1}, body.getParentOp()});
  }
  for (Value value : liveness.values()) {
    Operation *op = value.getDefiningOp();
    number[value] = parent.size();
    parent.push_back(parent.size());
    buffers.push_back({{value}, byteSize(value.getType()), liveness.lifetime(value), isLeaf(op) ? op : nullptr});
  }
  body.walk([&](AccumulateOp accumulate) {
    for (auto [argument, operand] : llvm::zip(accumulate.getBody().getArguments(), accumulate.getInputs()))
      number[argument] = number.lookup(operand);
  });
  for (auto view : body.getOps<MicrobatchOp>())
    number[view.getElement()] = number.lookup(view.getStack());
  // Caches are written in place. Then yields, updates and arguments come first; operands come last.
  body.walk([&](CacheWriteOp write) { join(number.lookup(write.getCache()), number.lookup(write.getResult())); });
  shareYields(body);
  shareUpdates(body);
  shareArguments(dying, body.getTerminator());
  // Ops inside a fusion have no homes, and a start shares through its moves.
  body.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (auto start = dyn_cast<StartOp>(op))
      shareStarted(start);
    else if (auto call = dyn_cast<CallOp>(op))
      shareCalled(call);
    else
      shareOperands(op);
    return isa<FusionOp, StartOp>(op) ? WalkResult::skip() : WalkResult::advance();
  });
}

/// With one microbatch, a result of pc.accumulate shares the home of the value that the body yields for it.
void Buffers::shareYields(Block &body) {
  for (auto accumulate : body.getOps<AccumulateOp>()) {
    if (accumulate.getMicrobatches() != 1)
      continue;
    llvm::DenseSet<Value> yielded;
    Block &inner = accumulate.getBody().front();
    for (auto [value, result] : llvm::zip(inner.getTerminator()->getOperands(), accumulate.getResults())) {
      Operation *producer = value.getDefiningOp();
      if (producer && producer->getBlock() == &inner && !isLeaf(producer) && yielded.insert(value).second)
        join(number.lookup(value), number.lookup(result));
    }
  }
}

/// The new value of a leaf shares the home of the old one, if all readers of the old value come before it is written.
void Buffers::shareUpdates(Block &body) {
  LeavesByName leaves(body);
  for (auto update : body.getOps<UpdateOp>()) {
    Value leaf = leaves.of(update);
    auto result = dyn_cast<OpResult>(update.getValue());
    if (!leaf || !result || isLeaf(result.getOwner()) || isa<AccumulateOp>(result.getOwner()) ||
        result.getOwner()->getBlock() != &body || buffers[of(result)].leaf)
      continue;
    Operation *producer = result.getOwner();
    int64_t written = liveness.lifetime(result).first;
    bool legal = llvm::all_of(leaf.getUses(), [&](OpOperand &use) {
      return use.getOwner() == producer ? mayShareHome(producer, use.getOperandNumber(), result.getResultNumber())
                                        : liveness.position(use) < written;
    });
    if (legal && buffers[of(result)].bytes == buffers[of(leaf)].bytes)
      join(number.lookup(leaf), number.lookup(result));
  }
}

/// A function's result shares the home of an argument that no caller reads after the call, for instance a sum to which
/// the function adds.
void Buffers::shareArguments(ArrayRef<BlockArgument> dying, Operation *terminator) {
  for (Value value : terminator->getOperands()) {
    auto result = dyn_cast<OpResult>(value);
    if (!result || isLeaf(result.getOwner()) || isa<WaitOp>(result.getOwner()) || buffers[of(result)].leaf)
      continue;
    Operation *producer = result.getOwner();
    for (OpOperand &use : producer->getOpOperands()) {
      auto argument = dyn_cast<BlockArgument>(use.get());
      bool free = argument && llvm::is_contained(dying, argument) && argument.hasOneUse() &&
                  buffers[of(argument)].values.size() == 1 && buffers[of(argument)].bytes == buffers[of(result)].bytes;
      if (!free || !mayShareHome(producer, use.getOperandNumber(), result.getResultNumber()))
        continue;
      join(number.lookup(argument), number.lookup(result));
      break;
    }
  }
}

void Buffers::shareCalled(CallOp call) {
  for (auto [result, argument] : llvm::zip_equal(call.getResults(), functions.of(call).inPlace))
    if (argument >= 0)
      join(number.lookup(call.getInputs()[argument]), number.lookup(result));
}

/// A result shares the home of an operand whose live range ends at the op.
void Buffers::shareOperands(Operation *op) {
  if (isLeaf(op) || isa<AccumulateOp, WaitOp>(op))
    return;
  int64_t now = liveness.position(op);
  for (OpResult result : op->getResults()) {
    if (buffers[of(result)].leaf)
      continue;
    for (Value operand : op->getOperands()) {
      const Buffer &buffer = buffers[of(operand)];
      if (of(operand) == of(result) || buffer.leaf || buffer.life.last != now ||
          buffer.bytes != buffers[of(result)].bytes)
        continue;
      // Two results cannot share the home of one operand.
      bool taken = llvm::any_of(op->getResults(), [&](Value other) { return of(other) == of(operand); });
      bool legal = llvm::all_of(op->getOpOperands(), [&](OpOperand &use) {
        return of(use.get()) != of(operand) || mayShareHome(op, use.getOperandNumber(), result.getResultNumber());
      });
      if (taken || !legal)
        continue;
      join(number.lookup(operand), number.lookup(result));
      break;
    }
  }
}

/// A move may work in place from its start to its wait, if it is the last to read its operand.
void Buffers::shareStarted(StartOp start) {
  WaitOp wait = start.getWait();
  SmallVector<MoveOpInterface> moves = start.getMoves();
  for (OpOperand &use : start->getOpOperands()) {
    unsigned i = use.getOperandNumber();
    Value input = use.get(), result = wait.getResult(i);
    const Buffer &buffer = buffers[of(input)];
    if (isa<BlockArgument>(input) || of(input) == of(result) || buffer.leaf || buffers[of(result)].leaf ||
        buffer.life.last != liveness.position(wait) || buffer.bytes != buffers[of(result)].bytes ||
        !mayShareHome(moves[i], 0, 0))
      continue;
    // The move may write at any time after its start, so all other readers must come before that.
    bool lastReader = llvm::all_of(input.getUses(), [&](OpOperand &other) {
      return &other == &use || liveness.position(other) < liveness.position(start);
    });
    if (lastReader)
      join(number.lookup(input), number.lookup(result));
  }
}

/// The buffer of a group's representative has the data of the whole group.
SmallVector<Buffers::Buffer> Buffers::take() {
  SmallVector<Buffer> groups;
  for (unsigned i = 0; i < parent.size(); ++i)
    if (find(i) == i)
      groups.push_back(std::move(buffers[i]));
  return groups;
}
