//===- MemoryUse.cpp - The contents of the arena over time -------------------------------------===//
// Input: the body of a planned step. Result: its buffers with offset, life and kind, and the bytes of each kind over
// time. Kinds follow from the ops (leaf, move, task), not from names. Values that share a home count once. If their
// kinds differ, the buffer has the kind that is last in the enum.
//===-----------------------------------------------------------------------------===//
#include "MemoryUse.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Calls.h"
#include "pc/IR/Contraction.h"
#include "pc/IR/MoveRows.h"
#include "pc/IR/Shapes.h"
#include "pcrt/description.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <map>
#include <numeric>
#include <tuple>

using namespace mlir;
using namespace pc;

StringRef pc::memoryKindName(MemoryKind kind) {
  static constexpr StringRef names[numMemoryKinds] = {"workspace",  "activations", "communication", "gradients",
                                                      "parameters", "optimizer",   "caches"};
  return names[static_cast<int>(kind)];
}

namespace {

/// Finds the gradients in a stage's program: the operands that the optimizer reads as gradients, and all values from
/// which moves and sums compute them.
void findStageGradients(Block &body, TaskFunctions &functions, llvm::DenseSet<Value> &gradients) {
  SmallVector<Value> open;
  auto add = [&](Value value) {
    if (isa<OpResult>(value) && !isLeaf(value.getDefiningOp()) && gradients.insert(value).second)
      open.push_back(value);
  };
  for (Operation &op : body) {
    if (auto adamw = dyn_cast<AdamWOp>(op))
      add(adamw.getGradient());
    else if (auto sgd = dyn_cast<SGDOp>(op))
      add(sgd.getGradient());
    else if (auto output = dyn_cast<OutputOp>(op); output && output.getKind() == OutputKind::Gradient)
      add(output.getValue());
  }
  while (!open.empty()) {
    auto value = cast<OpResult>(open.pop_back_val());
    Operation *op = value.getOwner();
    if (isa<MoveOpInterface, AddOp>(op))
      llvm::for_each(op->getOperands(), add);
    else if (isa<FusionOp>(op))
      llvm::for_each(op->getOperands(),
                     [&](Value operand) { shapeOf(operand) == shapeOf(value) ? add(operand) : void(); });
    else if (auto wait = dyn_cast<WaitOp>(op))
      add(wait.getStart().getInputs()[value.getResultNumber()]);
    else if (auto call = dyn_cast<CallOp>(op)) // follows the argument that holds the sum so far
      if (int argument = functions.of(call).inPlace[value.getResultNumber()]; argument >= 0)
        add(call.getInputs()[argument]);
  }
}

/// Finds the gradients: yielded tensors, results of accumulations, and results of moves of these.
llvm::DenseSet<Value> findGradients(Block &body, TaskFunctions &functions) {
  llvm::DenseSet<Value> gradients;
  findStageGradients(body, functions, gradients);
  auto isTensor = [](Value value) { return cast<RankedTensorType>(value.getType()).getRank() > 0; };
  for (Operation &op : body) {
    if (auto accumulate = dyn_cast<AccumulateOp>(op)) {
      for (Value value : accumulate.getBody().front().getTerminator()->getOperands())
        if (isTensor(value))
          gradients.insert(value);
      for (Value value : accumulate.getResults())
        if (isTensor(value))
          gradients.insert(value);
    } else if (isa<MoveOpInterface>(op) && gradients.contains(op.getOperand(0))) {
      gradients.insert(op.getResult(0));
    } else if (auto wait = dyn_cast<WaitOp>(op)) {
      for (auto [input, result] : llvm::zip_equal(wait.getStart().getInputs(), wait->getResults()))
        if (gradients.contains(input))
          gradients.insert(result);
    }
  }
  return gradients;
}

/// Returns true if `value` is a parameter, or a rounded, gathered or unpadded copy of one that the whole step reads.
bool isWeight(Value value) {
  Operation *op = value.getDefiningOp();
  if (auto wait = dyn_cast_or_null<WaitOp>(op))
    return isa<AllGatherOp>(wait.getStart().getMoves()[cast<OpResult>(value).getResultNumber()]) &&
           isWeight(wait.getStart().getInputs()[cast<OpResult>(value).getResultNumber()]);
  auto einsum = dyn_cast_or_null<EinsumOp>(op);
  auto fusion = dyn_cast_or_null<FusionOp>(op); // of pc-multiply-codes
  const bool isCopy = roundsOperand(op) || isa_and_nonnull<AllGatherOp, ResizeOp>(op) ||
                      (einsum && isTransposition(einsum)) ||
                      (fusion && isa<EncodeOp, EncodeScaledOp>(fusion.getBody().front().front()));
  return isa_and_nonnull<ParameterOp>(op) || (isCopy && isWeight(op->getOperand(0)));
}

/// Returns true if both passes of a microbatch read a gathered weight, as they do if it is gathered once for all
/// microbatches.
bool staysForBackward(Value value) {
  Operation *op = value.getDefiningOp();
  if (!isa<AccumulateOp>(op->getParentOp()) || !isa<AllGatherOp, WaitOp>(op) || !isWeight(value))
    return false;
  Block &body = *op->getBlock();
  auto seed = llvm::find_if(body, [](Operation &other) { return phaseBegunBy(&other) == StepPhase::Backward; });
  return seed != body.end() && op->isBeforeInBlock(&*seed) && llvm::any_of(op->getUsers(), [&](Operation *user) {
           return seed->isBeforeInBlock(body.findAncestorOpInBlock(*user));
         });
}

/// Returns true if a rounded copy is the operand of a gather that runs once per step.
bool isGatheredOnce(Operation *op) {
  return isa<CastOp>(op) && llvm::all_of(op->getUsers(), [&](Operation *user) {
           auto accumulate = dyn_cast<AccumulateOp>(user->getParentOp());
           bool isOnce = user->getBlock() == op->getBlock() ||
                         (accumulate && accumulate.getMicrobatches() == 1 && op->hasOneUse());
           return isOnce && isa<AllGatherOp, StartOp>(user);
         });
}

/// The kind of a buffer. The first rule that matches decides.
MemoryKind kindOf(Value value, const llvm::DenseSet<Value> &gradients, const llvm::DenseSet<Operation *> &inTasks) {
  if (gradients.contains(value))
    return MemoryKind::Gradient;
  Operation *op = value.getDefiningOp();
  if (isa<func::FuncOp>(op->getParentOp()) && !inTasks.contains(op) && isWeight(value))
    return isGatheredOnce(op) ? MemoryKind::Communication : MemoryKind::Parameter;
  if (staysForBackward(value))
    return MemoryKind::Parameter;
  if (auto state = dyn_cast<StateOp>(op))
    return state.getCache()                ? MemoryKind::Cache
           : state.getName() == PCRT_SCALE ? MemoryKind::Parameter
                                           : MemoryKind::Optimizer;
  auto moveOf = [](StartOp start, unsigned i) { return start.getMoves()[i]; };
  Operation *producer = op, *reader = value.hasOneUse() ? *value.user_begin() : nullptr;
  if (auto wait = dyn_cast<WaitOp>(op))
    producer = moveOf(wait.getStart(), cast<OpResult>(value).getResultNumber());
  if (auto start = dyn_cast_or_null<StartOp>(reader))
    reader = moveOf(start, value.use_begin()->getOperandNumber());
  if (isa<AllGatherOp, AllToAllOp, AllToAllRowsOp, CarryOp>(producer) ||
      isa_and_nonnull<ReduceScatterOp, AllToAllOp, AllToAllRowsOp>(reader))
    return MemoryKind::Communication;
  // An unpadded copy of a weight that is stored with padding.
  if (auto resize = dyn_cast<ResizeOp>(op))
    return isa_and_nonnull<AllGatherOp, WaitOp>(resize.getX().getDefiningOp()) ? MemoryKind::Communication
                                                                               : MemoryKind::Workspace;
  return isa<AccumulateOp>(op->getParentOp()) || inTasks.contains(op) ? MemoryKind::Activation : MemoryKind::Workspace;
}

int64_t homeOf(Value value) {
  auto home = dyn_cast_or_null<HomeAttr>(cast<RankedTensorType>(value.getType()).getEncoding());
  return home ? home.getOffset() : 0;
}

} // namespace

/// Collects the buffers from homes and lifetimes, and adds up the bytes of each kind by a sweep over the positions.
MemoryProfile::MemoryProfile(Block &body) : lives(body) {
  TaskFunctions functions;
  llvm::DenseSet<Value> gradients = findGradients(body, functions);
  llvm::DenseSet<Operation *> inTasks; // ops in tasks of a pipeline, before the optimizer
  for (auto [op, inTask] = std::pair(&body.front(), false); op; op = op->getNextNode()) {
    if (auto task = dyn_cast<TaskOp>(op))
      inTask = task.getKind() != TaskKind::Optimizer;
    if (inTask)
      inTasks.insert(op);
  }
  llvm::DenseSet<int64_t> leafHomes;
  SmallVector<PlacedBuffer> single;
  auto add = [&](Value value) {
    if (spaceOf(value) != Space::Device)
      return;
    single.push_back({value, homeOf(value), static_cast<int64_t>(llvm::alignTo(byteSize(value.getType()), 64)),
                      lives.lifetime(value), kindOf(value, gradients, inTasks)});
  };
  // Leaves come first: a value in the home of a leaf is its update, and adds no memory.
  for (Value value : lives.values())
    if (isLeaf(value.getDefiningOp()) && leafHomes.insert(homeOf(value)).second)
      add(value);
  for (Value value : lives.values())
    if (!isLeaf(value.getDefiningOp()) && !leafHomes.contains(homeOf(value))) // an updated leaf is in the leaf's home
      add(value);
  for (auto call : body.getOps<CallOp>())
    if (int64_t bytes = functions.of(call).frameBytes; call.getFrame() && call.getNumResults() && bytes > 0) {
      // A frame exists only during its call.
      int64_t at = lives.position(call);
      single.push_back(
          {call.getResult(0), static_cast<int64_t>(*call.getFrame()), bytes, {at, at}, MemoryKind::Activation});
    }

  // Values that share a home one after the other, such as an operand and the result that replaces it, are one buffer:
  // their bytes count once.
  auto key = [](const PlacedBuffer &b) { return std::tuple(b.offset, b.life.first, b.life.last, b.kind, b.bytes); };
  llvm::sort(single, [&](const PlacedBuffer &a, const PlacedBuffer &b) { return key(a) < key(b); });
  for (const PlacedBuffer &next : single) {
    if (!placed.empty() && placed.back().offset == next.offset && next.life.first <= placed.back().life.last) {
      PlacedBuffer &last = placed.back();
      last.life.last = std::max(last.life.last, next.life.last);
      last.kind = std::max(last.kind, next.kind);
    } else {
      placed.push_back(next);
    }
  }

  // Sweep over positions: add the buffers that begin at each one, subtract those that have ended before it.
  std::map<int64_t, MemoryUse> change;
  for (const PlacedBuffer &buffer : placed) {
    change[buffer.life.first][static_cast<int>(buffer.kind)] += buffer.bytes;
    change[buffer.life.last + 1][static_cast<int>(buffer.kind)] -= buffer.bytes;
  }
  MemoryUse live = {};
  int64_t largest = -1;
  for (const auto &[position, bytes] : change) {
    for (int kind = 0; kind < numMemoryKinds; ++kind) {
      live[kind] += bytes[kind];
      most[kind] = std::max(most[kind], live[kind]);
    }
    if (int64_t total = std::accumulate(live.begin(), live.end(), int64_t(0)); total > largest) {
      largest = total;
      fullest = position;
    }
  }
}

/// Adds up the buffers that are alive at this position, by kind.
MemoryUse MemoryProfile::at(int64_t position) const {
  MemoryUse use = {};
  for (const PlacedBuffer &buffer : placed)
    if (buffer.life.first <= position && position <= buffer.life.last)
      use[static_cast<int>(buffer.kind)] += buffer.bytes;
  return use;
}

MemoryUse MemoryProfile::atPeak(int64_t arenaBytes) const {
  MemoryUse use = at(fullest);
  int64_t live = std::accumulate(use.begin(), use.end(), int64_t(0));
  use[static_cast<int>(MemoryKind::Workspace)] += arenaBytes - live;
  return use;
}
