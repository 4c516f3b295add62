//===- VerifyMemory.cpp - Replay the step on its arena ------------------------------------===//
// Walks the program in the order in which a rank executes it, and keeps a map from bytes to the value that they hold. A
// value is released when its last pending use is done. If the body of an accumulation uses a value from outside, the
// use counts as done when the accumulation ends, because the body repeats. A value that is added to a sum over
// microbatches is read right after the op that computes it. A started move writes its result from the start on and
// reads its input until the wait.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_VERIFYMEMORY
#include "pc/Memory/Passes.h"

#include "pc/IR/Calls.h"
#include "pc/IR/Generation.h"
#include "pc/IR/LeavesByName.h"
#include "pc/IR/Liveness.h"
#include "pc/IR/Sharing.h"

#include "llvm/ADT/TypeSwitch.h"
#include <map>

using namespace mlir;
using namespace pc;

namespace {

/// One walk over a step, or over a task function in its own address space. `held` has the value that each byte holds.
/// The check fails at the first read of a value whose bytes hold another value, and at a write over a value that is
/// still needed.
class Replay {
public:
  /// `functions` are the functions that the step calls. If `arena` is null, all homes count as inside the arena.
  Replay(ArenaOp arena, TaskFunctions &functions) : arena(arena), functions(functions) {}

  /// (A7) Checks a function in its own address space. It holds its arguments at the start, and keeps those that no
  /// result overwrites. It holds all results at the end. All other values are in the frame.
  LogicalResult run(const TaskFunction &called) {
    Operation *op = called.function, *terminator = called.body->getTerminator();
    for (BlockArgument argument : called.body->getArguments()) {
      if (failed(checkHome(op, argument)))
        return failure();
      if (!overlapping(argument).empty())
        return op->emitOpError() << "has arguments that overlap (A7)";
      hold(argument);
      pending[argument] = llvm::range_size(argument.getUses());
      if (!llvm::is_contained(called.inPlace, static_cast<int>(argument.getArgNumber())))
        permanent.insert(homeOrNone(argument));
    }
    if (failed(runBlock(*called.body, nullptr)))
      return failure();
    for (Value result : called.results())
      if (!holds(result))
        return terminator->emitOpError() << "finds its result at offset " << homeOrNone(result) << " overwritten (A7)";
    // Only arguments and results are after the frame.
    llvm::DenseMap<int64_t, int64_t> outside; // bytes, by home
    SmallVector<Value> values(called.body->getArguments());
    llvm::append_range(values, called.results());
    for (Value value : values)
      outside[homeOrNone(value)] = byteSize(value.getType());
    for (Operation &inner : *called.body)
      for (Value value : inner.getResults())
        if (!isa<TicketType>(value.getType()) && homeOrNone(value) + byteSize(value.getType()) > called.frameBytes &&
            outside.lookup(homeOrNone(value)) != byteSize(value.getType()))
          return inner.emitOpError() << "has a value outside the frame of " << called.frameBytes << " bytes (A7)";
    return success();
  }

  /// Enters the leaves first, because they have values before the step begins.
  LogicalResult run(Block &body) {
    WalkResult entered = body.walk([&](Operation *op) { // also leaves in accumulations, which are always live
      return isLeaf(op) && !isa<FusionOp, StartOp>(op->getParentOp()) ? WalkResult(enterLeaf(op))
                                                                      : WalkResult::advance();
    });
    return entered.wasInterrupted() ? failure() : runBlock(body, nullptr);
  }

private:
  /// The value that holds a range of bytes, which begins at its key in `held`.
  struct Holder {
    int64_t end;
    Value value;
  };
  using Map = std::map<int64_t, Holder>;

  /// Checks (A1) for one value.
  LogicalResult checkHome(Operation *op, Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    if (!type || !type.hasStaticShape() || homeOrNone(value) < 0)
      return op->emitOpError() << "has a value without an arena offset: " << value.getType() << " (A1)";
    if (homeOrNone(value) % 64 || !isInside(homeOrNone(value), byteSize(type)))
      return op->emitOpError() << "has a value outside the arena of " << arena.sizeOf(spaceOf(type))
                               << " bytes, or at a misaligned offset: " << type << " (A1)";
    return success();
  }

  bool isInside(int64_t begin, int64_t bytes) { return !arena || arena.contains(begin, begin + bytes); }

  /// The holders that overlap `value`'s bytes.
  SmallVector<Value> overlapping(Value value) {
    SmallVector<Value> found;
    int64_t begin = homeOrNone(value), end = begin + byteSize(value.getType());
    auto it = held.upper_bound(begin);
    if (it != held.begin() && std::prev(it)->second.end > begin)
      --it;
    for (; it != held.end() && it->first < end; ++it)
      found.push_back(it->second.value);
    return found;
  }

  void hold(Value value) { held[homeOrNone(value)] = {homeOrNone(value) + byteSize(value.getType()), value}; }

  bool holds(Value value) {
    auto it = held.find(homeOrNone(value));
    return it != held.end() && it->second.value == value;
  }

  void release(Value value) {
    if (holds(value) && !permanent.contains(homeOrNone(value)))
      held.erase(homeOrNone(value));
  }

  /// Checks (A3) for a leaf: leaves keep their bytes from the start to the end of the step.
  LogicalResult enterLeaf(Operation *leaf) {
    Value value = leaf->getResult(0);
    if (failed(checkHome(leaf, value)))
      return failure();
    if (!overlapping(value).empty())
      return leaf->emitOpError() << "overlaps another input, parameter or state (A3)";
    hold(value);
    permanent.insert(homeOrNone(value));
    pending[value] = llvm::range_size(value.getUses());
    leaves.add(leaf);
    return success();
  }

  /// Returns true if `op` may write `result` over `old`: both have the same home, `old` has no reader after `op`, and
  /// `op` works in place if it reads `old`.
  bool mayReplace(Operation *op, OpResult result, Value old) {
    if (homeOrNone(old) != homeOrNone(result) || byteSize(old.getType()) != byteSize(result.getType()) || pending[old])
      return false;
    if (auto write = dyn_cast<CacheWriteOp>(op))
      return write.getCache() == old;
    bool permanentHome = permanent.contains(homeOrNone(old));
    if (!permanentHome && !llvm::is_contained(op->getOperands(), old))
      return false; // another result of this op
    if (permanentHome && llvm::none_of(result.getUsers(), [&](Operation *user) {
          auto update = dyn_cast<UpdateOp>(user);
          return update && leaves.of(update) == old;
        }))
      return false; // only a leaf's own new value may overwrite it
    auto call = dyn_cast<CallOp>(op);
    return llvm::all_of(op->getOpOperands(), [&](OpOperand &use) {
      if (use.get() != old)
        return true;
      if (call)
        return functions.of(call).inPlace[result.getResultNumber()] == static_cast<int>(use.getOperandNumber());
      return mayShareHome(op, use.getOperandNumber(), result.getResultNumber());
    });
  }

  /// Checks (A3) for one result.
  LogicalResult write(Operation *op, OpResult result) {
    if (failed(checkHome(op, result)))
      return failure();
    if (auto cache = dyn_cast<CacheWriteOp>(op); cache && homeOrNone(cache.getCache()) != homeOrNone(result))
      return op->emitOpError() << "must write into its cache, but the result has a home of its own (A3)";
    for (Value old : overlapping(result)) {
      if (!mayReplace(op, result, old))
        return op->emitOpError() << "writes result " << result.getResultNumber() << " at " << homeOrNone(result)
                                 << " over a value that is still needed (A3)";
    }
    hold(result);
    pending[result] = llvm::range_size(result.getUses());
    return success();
  }

  /// Checks (A5). The results of the wait are held from here on.
  LogicalResult replay(StartOp start) {
    WaitOp wait = start.getWait();
    if (!wait || wait->getNumResults() != start->getNumOperands())
      return start.emitOpError() << "has no pc.wait (A5)";
    SmallVector<MoveOpInterface> moves = start.getMoves();
    for (auto [i, result] : llvm::enumerate(wait->getResults())) {
      if (failed(checkHome(wait, result)))
        return failure();
      for (Value old : overlapping(result)) {
        bool inPlace = old == start.getInputs()[i] && old.getParentBlock() == start->getBlock() && pending[old] == 1 &&
                       homeOrNone(old) == homeOrNone(result) && !permanent.contains(homeOrNone(old)) &&
                       mayShareHome(moves[i], 0, 0);
        bool updates = permanent.contains(homeOrNone(old)) && mayReplace(start, cast<OpResult>(result), old);
        if (!inPlace && !updates)
          return start.emitOpError() << "starts to write result " << i << " at " << homeOrNone(result)
                                     << " over a value that is still needed (A5)";
      }
      hold(result);
      pending[result] = llvm::range_size(result.getUses());
    }
    return success();
  }

  /// (A5) Counts the inputs of the start as read; checks that the results still have the homes that the start used.
  LogicalResult replay(WaitOp wait, SmallVectorImpl<Value> *later) {
    StartOp start = wait.getStart();
    if (!start)
      return wait.emitOpError() << "has no pc.start (A5)";
    for (Value result : wait->getResults())
      if (!holds(result))
        return wait.emitOpError() << "finds its result at offset " << homeOrNone(result) << " overwritten (A5)";
    read(start, later);
    readAdded(wait);
    releaseDead(start.getInputs(), wait->getBlock());
    releaseDead(wait->getResults(), wait->getBlock());
    return success();
  }

  /// Checks (A4).
  LogicalResult replay(UpdateOp update) {
    Value leaf = leaves.of(update), value = update.getValue();
    if (!leaf)
      return update.emitOpError() << "sets an unknown parameter or state (A4)";
    if (homeOrNone(leaf) == homeOrNone(value)) {
      if (!holds(value))
        return update.emitOpError() << "finds its value at offset " << homeOrNone(leaf) << " overwritten (A4)";
      return success();
    }
    if (spaceOf(leaf) != Space::Device || spaceOf(value) != Space::Device)
      return update.emitOpError() << "copies to or from another space, which only pc.carry does (A4)";
    if (pending[leaf])
      return update.emitOpError() << "copies over '" << update.getName() << "', whose old value is read later (A4)";
    return success();
  }

  /// (A7) Results that the function writes over arguments have the homes of the operands. The bytes of the frame are
  /// free.
  LogicalResult replay(CallOp call) {
    const TaskFunction &called = functions.of(call);
    if (!call.getFrame())
      return call.emitOpError() << "has no frame (A7)";
    int64_t frame = *call.getFrame(), end = frame + called.frameBytes;
    if (frame < 0 || frame % 64 || !isInside(frame, called.frameBytes))
      return call.emitOpError() << "has a frame outside the arena (A7)";
    for (auto [result, argument] : llvm::zip_equal(call.getResults(), called.inPlace))
      if (argument >= 0 && homeOrNone(result) != homeOrNone(call.getInputs()[argument]))
        return call.emitOpError() << "has a result that is not at the offset of the operand that it overwrites (A7)";
    for (OpResult result : call->getResults())
      if (failed(write(call, result)))
        return failure();
    auto it = held.upper_bound(frame);
    bool taken = called.frameBytes > 0 &&
                 ((it != held.begin() && std::prev(it)->second.end > frame) || (it != held.end() && it->first < end));
    if (taken)
      return call.emitOpError() << "has a frame at " << frame << " that overlaps a value that is still needed (A7)";
    releaseDead(call.getInputs(), call->getBlock());
    releaseDead(call.getResults(), call->getBlock());
    return success();
  }

  /// (A6) Views need no pending uses, because leaves, and other stacks with views, are never released.
  LogicalResult replay(MicrobatchOp view) {
    Value stack = view.getStack(), element = view.getElement();
    int64_t offset = static_cast<int64_t>(view.getIndex()) * byteSize(element.getType());
    Operation *made = stack.getDefiningOp();
    if (!made || !(isLeaf(made) || holds(stack)) || homeOrNone(element) != homeOrNone(stack) + offset)
      return view.emitOpError() << "is not inside its stack, which must be in the arena (A6)";
    ++pending[stack];
    return success();
  }

  /// Checks (A2) and the results of an accumulation.
  LogicalResult replay(AccumulateOp accumulate) {
    bool once = accumulate.getMicrobatches() == 1;
    Block &inner = accumulate.getBody().front();
    for (auto [argument, operand] : llvm::zip(inner.getArguments(), accumulate.getInputs()))
      if (homeOrNone(argument) != homeOrNone(operand))
        return accumulate.emitOpError() << "has a block argument that is not at the offset of its operand (A2)";
    for (OpResult result : accumulate->getResults())
      if (!once && failed(write(accumulate, result)))
        return failure();
    SmallVector<Value> later;
    if (failed(runBlock(inner, &later)))
      return failure();
    Operation *yield = inner.getTerminator();
    // A value that was computed at the result's home becomes the result; others are copied or added.
    for (auto [value, result] : llvm::zip(yield->getOperands(), accumulate->getResults())) {
      if (!once)
        continue;
      bool inPlace = homeOrNone(value) == homeOrNone(result) && value.getParentBlock() == &inner &&
                     value.getDefiningOp() && !isLeaf(value.getDefiningOp()) && holds(value);
      if (inPlace) {
        if (failed(checkHome(accumulate, result)))
          return failure();
        hold(result);
        pending[result] = llvm::range_size(result.getUses());
      } else if (failed(write(accumulate, result))) {
        return failure();
      }
    }
    read(yield, &later);
    releaseDead(yield->getOperands(), &inner);
    llvm::append_range(later, accumulate.getInputs());
    // The body has read its captured values, and the accumulation its operands, for the last time.
    for (Value value : later)
      --pending[value];
    releaseDead(later, accumulate->getBlock());
    releaseDead(accumulate->getResults(), accumulate->getBlock());
    return success();
  }

  /// Counts the uses by `op` as done: uses of values of the op's own block now, and other uses when the surrounding
  /// accumulation ends.
  void read(Operation *op, SmallVectorImpl<Value> *later) {
    for (OpOperand &use : op->getOpOperands()) {
      Value operand = use.get();
      if (isPart(operand) || addedAfter(use))
        continue;
      if (operand.getParentBlock() == op->getBlock())
        --pending[operand];
      else
        later->push_back(operand);
    }
  }

  /// Counts the uses of `op`'s results by sums over microbatches as done.
  void readAdded(Operation *op) {
    for (OpOperand &use : op->getUses())
      if (addedAfter(use))
        --pending[use.get()];
  }

  /// Returns true if `value` is a block argument of an accumulation, which is a part of an operand.
  static bool isPart(Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    return argument && isa<AccumulateOp>(argument.getOwner()->getParentOp());
  }

  void releaseDead(ValueRange values, Block *block) {
    for (Value value : values)
      if (!isPart(value) && value.getParentBlock() == block && !pending[value])
        release(value);
  }

  /// Replays the ops in order. `later` collects values that an accumulation's body reads from outside. They are not
  /// dead before all microbatches have run.
  LogicalResult runBlock(Block &block, SmallVectorImpl<Value> *later) {
    for (Operation &op : block) {
      if (isLeaf(&op) || op.hasTrait<OpTrait::IsTerminator>()) // leaves are entered already;
                                                               // callers count a terminator's uses
        continue;
      if (later && isa<AccumulateOp>(op))
        return op.emitOpError() << "is nested in another accumulation (A1)";
      if (isa<AccumulateOp, StartOp, WaitOp>(op)) {
        if (failed(llvm::TypeSwitch<Operation *, LogicalResult>(&op)
                       .Case<AccumulateOp, StartOp>([&](auto inner) { return replay(inner); })
                       .Case([&](WaitOp wait) { return replay(wait, later); })))
          return failure();
        continue;
      }
      // From here on, only uses after this op are pending.
      read(&op, later);
      if (isa<MicrobatchOp, CallOp>(op)) {
        if (failed(isa<CallOp>(op) ? replay(cast<CallOp>(op)) : replay(cast<MicrobatchOp>(op))))
          return failure();
        continue;
      }
      if (auto update = dyn_cast<UpdateOp>(op); update && failed(replay(update)))
        return failure();
      for (OpResult result : op.getResults())
        if (failed(write(&op, result)))
          return failure();
      readAdded(&op);
      releaseDead(op.getOperands(), &block);
      releaseDead(op.getResults(), &block);
    }
    return success();
  }

  ArenaOp arena;
  TaskFunctions &functions;
  Map held;                               ///< by offset
  llvm::DenseMap<Value, int64_t> pending; ///< uses still to come
  llvm::DenseSet<int64_t> permanent;      ///< homes of leaves
  LeavesByName leaves;
};

/// The pass pc-verify-memory. Task functions are replayed before the step.
struct VerifyMemory : pc::impl::VerifyMemoryBase<VerifyMemory> {
  void runOnOperation() override {
    SmallVector<func::FuncOp> steps = stepsOf(getOperation());
    auto arenas = llvm::to_vector(getOperation().getOps<ArenaOp>());
    if (steps.size() != 1 || arenas.size() != 1 || !steps[0].getBody().hasOneBlock()) {
      getOperation().emitError()
          << "pc-verify-memory: a planned program must have one function of one block, and one pc.arena (A1)";
      return signalPassFailure();
    }
    TaskFunctions functions;
    llvm::DenseSet<Operation *> seen;
    bool failed = false;
    for (auto call : steps[0].getOps<CallOp>())
      if (const TaskFunction &called = functions.of(call); seen.insert(called.function).second)
        failed |= mlir::failed(Replay(ArenaOp(), functions).run(called));
    if (failed || mlir::failed(Replay(arenas[0], functions).run(steps[0].getBody().front())))
      signalPassFailure();
  }
};

} // namespace
