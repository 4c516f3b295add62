//===- StepTasks.cpp - A training step as tasks of chunks ----------------------------------===//
// Units.cpp determines where a layer begins; data flow determines everything else.
//===-----------------------------------------------------------------------------===//
#include "StepTasks.h"

#include "pc/Cost/Cost.h"
#include "pc/IR/Liveness.h"

#include <set>

using namespace mlir;
using namespace pc;
using namespace pc::pipeline;

/// Returns true if the op costs more than reading its operands: a matrix product or attention.
static bool isExpensive(Operation *op) { return flopsOf(op) > 0; }

ArrayRef<Operation *> StepTasks::ops(TaskKind kind, int chunk) const {
  auto it = tasks.find({kind, chunk});
  return it == tasks.end() ? ArrayRef<Operation *>() : it->second;
}

ArrayRef<Value> StepTasks::handedOn(TaskKind kind, int chunk) const {
  auto it = handed.find({kind, chunk});
  return it == handed.end() ? ArrayRef<Value>() : it->second;
}

/// Finds cheap ops that depend neither on the microbatch nor on gradients, and gathers whose blocks pass around a ring
/// in one chunk.
void StepTasks::findMadeAgain() {
  for (Operation &op : body().without_terminator()) {
    bool ofParameters = !isa<SeedOp, OutputOp>(op) && !isExpensive(&op) && !isa<EmbeddingOp>(op) &&
                        llvm::all_of(op.getOperands(), [&](Value value) {
                          if (value.getParentBlock() != &body())
                            return true;
                          Operation *definition = value.getDefiningOp();
                          return definition && madeAgain.contains(definition);
                        });
    auto isOfChunk = [&](Operation *user) { return chunk.lookup(user) == chunk.lookup(&op); };
    if (ofParameters || (comesRound(&op) && llvm::all_of(op.getUsers(), isOfChunk)))
      madeAgain.insert(&op);
  }
}

/// An op that each task repeats is replaced by its own readers.
SmallVector<Operation *> StepTasks::readersOf(Value value) const {
  SmallVector<Operation *> readers;
  for (Operation *user : value.getUsers())
    if (madeAgain.contains(user))
      llvm::append_range(readers, user->getUsers());
    else
      readers.push_back(user);
  return readers;
}

/// Moves an op to the chunk of its readers if its result is larger than its operand, or if it reads a value that this
/// chunk receives anyway.
void StepTasks::sinkGrowing() {
  for (Operation &op : llvm::reverse(body())) {
    if (!isUnaryLinear(&op) || madeAgain.contains(&op) || op.use_empty())
      continue;
    std::set<int> readers;
    for (Operation *user : op.getUsers())
      readers.insert(isa<YieldOp>(user) ? chunk[&op] : chunk[user]);
    int to = *readers.begin();
    if (readers.size() > 1 || to == chunk[&op])
      continue;
    Value from = op.getOperand(0);
    bool there =
        llvm::any_of(from.getUsers(), [&](Operation *user) { return user != &op && chunk.lookup(user) == to; });
    bool grows = isa<AllGatherOp>(op) || byteSize(from.getType()) < byteSize(op.getResult(0).getType());
    if (there || grows)
      chunk[&op] = to;
  }
}

/// Collects the addends of `value` with their chunks. Returns false if all of them are in one chunk, which then has the
/// whole value.
bool StepTasks::collectAddends(Value value, SmallVector<Operation *, 2> through, SmallVectorImpl<Addend> &addends,
                               SmallVectorImpl<Operation *> &inside) {
  Operation *op = value.getDefiningOp();
  if (op && value.hasOneUse() && (isa<AddOp>(op) || isUnaryLinear(op))) {
    SmallVector<Operation *, 2> inner = through;
    if (!isa<AddOp>(op))
      inner.insert(inner.begin(), op);
    size_t before = addends.size(), insideBefore = inside.size();
    inside.push_back(op);
    for (Value operand : op->getOperands())
      collectAddends(operand, inner, addends, inside);
    std::set<int> chunks;
    for (const Addend &addend : llvm::drop_begin(addends, before))
      chunks.insert(addend.chunk);
    if (chunks.size() > 1)
      return true;
    addends.truncate(before);
    inside.truncate(insideBefore);
  }
  addends.push_back({value, through, TaskKind::Forward, op ? chunk.lookup(op) : 0});
  return false;
}

/// The gradient of a parameter of several chunks is the sum of their gradients. This sum is moved out of the body.
void StepTasks::splitSums() {
  for (Value value : body().getTerminator()->getOperands()) {
    SmallVector<Operation *> inside;
    collectAddends(value, {}, sums.emplace_back(), inside);
    sumOps.insert(inside.begin(), inside.end());
  }
}

/// Ops before the seed are F. After it, ops that depend on the seed are B, and the others, which are copies, are R. If
/// weight gradients are separate tasks, the ops that only lead to sums are W.
void StepTasks::findKinds() {
  bool afterSeed = false;
  // An op depends on the seed if one of its operands does. An op after the seed that does not depend on it is a copy
  // for recomputation.
  llvm::DenseSet<Operation *> last; // ops with only moves and casts between them and the yield
  for (Operation &op : body().without_terminator()) {
    afterSeed |= isa<SeedOp>(op);
    if (madeAgain.contains(&op) || sumOps.contains(&op))
      continue;
    bool gradient = isa<SeedOp>(op) || llvm::any_of(op.getOperands(), [&](Value value) {
                      return dependsOnSeed.contains(value.getDefiningOp());
                    });
    if (gradient)
      dependsOnSeed.insert(&op);
    kind[&op] = !afterSeed ? TaskKind::Forward : gradient ? TaskKind::Backward : TaskKind::Recompute;
  }
  if (!split)
    return;
  for (Operation &op : llvm::reverse(body().without_terminator())) {
    if (!dependsOnSeed.contains(&op) || op.use_empty())
      continue;
    bool isLast = llvm::all_of(
        op.getUsers(), [&](Operation *user) { return isSummed(user) || (last.contains(user) && isUnaryLinear(user)); });
    if (isLast)
      last.insert(&op);
    bool onlyWeights = llvm::all_of(op.getUsers(), [&](Operation *user) {
      return isSummed(user) || (kind.lookup(user) == TaskKind::Weight && chunk.lookup(user) == chunk.lookup(&op));
    });
    if (onlyWeights && (isLast || !isExpensive(&op)))
      kind[&op] = TaskKind::Weight;
  }
}

/// Values that other chunks read are passed from chunk to chunk: activations to later chunks, gradients to earlier
/// ones.
LogicalResult StepTasks::findHandedOn() {
  for (Operation &op : body().without_terminator()) {
    if (!kind.count(&op))
      continue;
    int at = chunk[&op];
    for (Value value : op.getResults()) {
      int lowest = at, highest = at;
      for (Operation *user : value.getUsers()) {
        auto it = kind.find(user);
        if (it == kind.end() || chunk[user] == at)
          continue;
        // Forward values may go only to later chunks. To an earlier chunk, only gradients may go, and only to ops of
        // its backward pass.
        bool up = chunk[user] > at;
        if (up ? kind[&op] != TaskKind::Forward
               : it->second == TaskKind::Forward || it->second == TaskKind::Recompute ||
                     kind[&op] == TaskKind::Weight) {
          InFlightDiagnostic error = user->emitOpError()
                                     << "of chunk " << chunk[user] << " needs a value of chunk " << at
                                     << " that is not computed before it, so the model cannot be cut into chunks here";
          error.attachNote(op.getLoc()) << "computed by '" << op.getName() << "'";
          return error;
        }
        lowest = std::min(lowest, chunk[user]);
        highest = std::max(highest, chunk[user]);
      }
      // A value passes through all chunks between, because only neighbours exchange messages.
      for (int c = at; c < highest; ++c)
        handed[{TaskKind::Forward, c}].push_back(value);
      for (int c = at; c > lowest; --c)
        handed[{TaskKind::Backward, c}].push_back(value);
    }
  }
  return success();
}

/// The order matters: sums are split before kinds are found, and kinds are needed to find the values that pass between
/// chunks.
FailureOr<StepTasks> StepTasks::find(AccumulateOp accumulate, const Units &units, ArrayRef<int> chunkOf, bool split) {
  StepTasks result(accumulate, split);
  result.numChunks = chunkOf.back() + 1;
  for (auto [op, unit] : units.unit)
    result.chunk[op] = chunkOf[unit];
  result.findMadeAgain();
  result.sinkGrowing();
  result.splitSums();
  result.findKinds();
  if (failed(result.findHandedOn()))
    return failure();
  for (Operation &op : result.body().without_terminator())
    if (auto it = result.kind.find(&op); it != result.kind.end())
      result.tasks[{it->second, result.chunk[&op]}].push_back(&op);
  for (auto &addends : result.sums)
    for (Addend &addend : addends)
      if (Operation *op = addend.value.getDefiningOp())
        addend.kind = result.kind.lookup(op);
  return result;
}

/// Seconds are predicted for one rank. Memory counts the values that a later task of the chunk reads, from the task
/// that computes them to their last reader.
Problem StepTasks::problem(MeshAttr mesh, StringAttr axis, const MachineModel &machine) const {
  Problem p;
  p.split = split;
  NodeSpread spread = NodeSpread::ofGroups(mesh, axis, machine); // it is not known yet which stages send to each other
  auto seconds = [&](TaskKind kind, int c) {
    double sum = 0;
    for (Operation *op : ops(kind, c)) {
      sum += secondsOnRank(op, mesh, machine);
      for (Value operand : op->getOperands())
        if (Operation *gather = operand.getDefiningOp(); gather && madeAgain.contains(gather) && comesRound(gather))
          sum += secondsOnRank(gather, mesh, machine);
    }
    return sum;
  };
  for (int c = 0; c < numChunks; ++c) {
    p.forward.push_back(seconds(TaskKind::Forward, c));
    // A chunk with an R task has a positive time for it, which distinguishes it from a chunk without one.
    p.recompute.push_back(ops(TaskKind::Recompute, c).empty() ? 0 : std::max(seconds(TaskKind::Recompute, c), 1e-9));
    p.backward.push_back(seconds(TaskKind::Backward, c));
    p.weight.push_back(seconds(TaskKind::Weight, c));
    double handed = 0;
    for (Value value : handedOn(TaskKind::Forward, c))
      handed += localBytes(value, mesh);
    p.hop.push_back(messageSeconds(handed, spread, machine));
    // Collects the values that later tasks of the chunk read, among those that F and R compute and those that F
    // receives.
    double held = 0, heldByR = 0, released = 0;
    llvm::SetVector<Value> made;
    if (c)
      made.insert(handedOn(TaskKind::Forward, c - 1).begin(), handedOn(TaskKind::Forward, c - 1).end());
    for (TaskKind k : {TaskKind::Forward, TaskKind::Recompute})
      for (Operation *op : ops(k, c))
        made.insert(op->result_begin(), op->result_end());
    for (Value value : made) {
      bool later = false, weight = false, byR = kind.lookup(value.getDefiningOp()) == TaskKind::Recompute;
      for (Operation *user : readersOf(value))
        if (auto it = kind.find(user); it != kind.end() && chunk.lookup(user) == c && it->second != TaskKind::Forward) {
          later |= !byR || it->second != TaskKind::Recompute;
          weight |= it->second == TaskKind::Weight;
        }
      if (!later)
        continue;
      double bytes = localBytes(value, mesh);
      (byR ? heldByR : held) += bytes;
      released += weight ? 0 : bytes;
    }
    // Values that B computes or receives for W live from B to W. The memory model counts them from F to W, which is an
    // upper bound.
    if (split) {
      llvm::SetVector<Value> gradients;
      if (c + 1 < numChunks)
        gradients.insert(handedOn(TaskKind::Backward, c + 1).begin(), handedOn(TaskKind::Backward, c + 1).end());
      for (Operation *op : ops(TaskKind::Backward, c))
        gradients.insert(op->result_begin(), op->result_end());
      for (Value value : gradients)
        if (llvm::any_of(value.getUsers(), [&](Operation *user) {
              return kind.lookup(user) == TaskKind::Weight && chunk.lookup(user) == c && kind.count(user);
            }))
          held += localBytes(value, mesh);
    }
    p.held.push_back(held);
    p.heldByRecompute.push_back(heldByR);
    p.releasedByBackward.push_back(released);
  }
  return p;
}

double StepTasks::workspace(int of, MeshAttr mesh) const {
  double most = 0;
  for (TaskKind k : taskKinds) {
    llvm::DenseMap<Operation *, double> frees; // keyed by the last reader in the task
    double now = 0;
    for (Operation *op : ops(k, of)) {
      for (Value value : op->getResults()) {
        Operation *last = nullptr;
        bool inside = true;
        for (Operation *user : readersOf(value)) {
          auto it = kind.find(user);
          inside &= it != kind.end() && it->second == k && chunk.lookup(user) == of;
          last = !last || last->isBeforeInBlock(user) ? user : last;
        }
        if (!inside || !last)
          continue;
        now += localBytes(value, mesh);
        frees[last] += localBytes(value, mesh);
      }
      most = std::max(most, now);
      now -= frees.lookup(op);
    }
  }
  return most;
}
