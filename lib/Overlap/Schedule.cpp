//===- Schedule.cpp - Local program -> scheduled program ------------------------------===//
// Reads a block as a problem (Problem.h), solves it, and writes the solution as `pc.start` and `pc.wait`.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_SCHEDULE
#include "pc/Overlap/Passes.h"

#include "BringMovesIn.h"
#include "OrderUpdates.h"
#include "Problem.h"
#include "pc/Cost/Cost.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Layers.h"
#include "pc/IR/Liveness.h"
#include "pc/IR/MoveRows.h"
#include "pc/IR/Sharing.h"
#include "pc/IR/Stages.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Debug.h"
#include <map>
#include <set>

#define DEBUG_TYPE "pc-schedule"

using namespace mlir;
using namespace pc;

namespace {

/// Returns the unit with which a tensor is gathered: its layer, or the tensor itself if it belongs to no layer. Tiles
/// of a layer that have the same number (`pc-tile-parameters`) form a unit.
std::string unitName(StringRef tensor) {
  StringRef layer = layerOf(tensor), tile = tileOf(tensor);
  return layer.empty() ? tensor.str() : tile.empty() ? layer.str() : (layer + ":" + tile).str();
}

/// Reads one block into `items`, calls scheduleMoves(), and writes starts and waits. Positions are those of the ops
/// before rewriting.
class BlockScheduler {
public:
  BlockScheduler(Block &block, MeshAttr mesh, StringAttr stageAxis, const ScheduleLimits &limits)
      : block(block), mesh(mesh), stageAxis(stageAxis), limits(limits) {}

  /// Positions are numbered after sums and updates have moved to the ends of their tasks. The problem is solved once
  /// more if chains of moves change when moves are ready.
  void run() {
    hoistCarried();
    sinkSums();
    sinkUpdates();
    for (Operation &op : block) {
      position[&op] = ops.size();
      ops.push_back(&op);
      accumulates |= isa<AccumulateOp>(op);
      if (phaseBegunBy(&op) == StepPhase::Optimizer)
        optimizerBegin = position[&op];
    }
    int64_t lastCall = -1; // a task (pc.call) may send, so no move is in flight across it
    for (Operation *op : ops) {
      if (isa<CallOp>(op))
        lastCall = position.lookup(op);
      if (sends(op)) {
        addItem(cast<MoveOpInterface>(op));
        notBefore.push_back(lastCall);
        items.back().ready = std::max(items.back().ready, lastCall);
      }
    }
    int64_t nextCall = ops.size() - 1;
    for (int64_t at = ops.size() - 1, left = items.size(); at >= 0; --at) {
      if (isa<CallOp>(ops[at]))
        nextCall = at;
      if (!left || items[left - 1].place != at)
        continue;
      --left;
      items[left].needed = std::min(items[left].needed, nextCall);
    }
    for (auto accumulate : block.getOps<AccumulateOp>())
      keepOutOf(accumulate);
    for (auto move : block.getOps<AllToAllRowsOp>())
      keepOutOf(move, {number(groups, axesOf(move))});
    SmallVector<MoveBucket> buckets = scheduleMoves(items, limits);
    // If a move reads the result of another move, it is ready only at that move's wait, whose position is known only
    // now. The problem is then solved again with this position.
    bool hasChains = endCarriesBefore(buckets);
    if (advanceChains(buckets) || hasChains)
      buckets = scheduleMoves(items, limits);
    for (const MoveBucket &bucket : buckets) {
      bool isBlocking = blocks(bucket, buckets);
      LLVM_DEBUG(llvm::dbgs() << bucket.items.size() << " moves start after op " << bucket.start
                              << " and end before op " << bucket.wait << (isBlocking ? ": blocking\n" : "\n"));
      if (!isBlocking)
        write(bucket);
    }
    for (Operation *move : llvm::reverse(replaced))
      move->erase();
    decodeEarly();
  }

private:
  /// Returns true if `op` is a carry, or a move between two or more ranks, that may be in flight. Moves of rows always
  /// block. Moves between stages are not changed, because each stage's program is scheduled separately, and all stages
  /// have to run these moves in the same order.
  bool sends(Operation *op) const {
    auto move = dyn_cast_or_null<MoveOpInterface>(op);
    return move && !isa<AllToAllRowsOp>(op) && !isOverStages(op) &&
           (isa<CarryOp>(op) || (hasTraffic(move.getMoveKind()) && mesh && mesh.size(move.getMoveAxes()) > 1));
  }

  bool isOverStages(Operation *op) const {
    auto move = dyn_cast<MoveOpInterface>(op);
    return move && stageAxis && llvm::is_contained(move.getMoveAxes(), stageAxis);
  }

  /// If some leaves are carried, moves leaves before the readers of other leaves, so that a carry may start before
  /// these readers. Parameters keep their order, which decides how they are drawn. Updates are sorted for the memory of
  /// carries.
  void hoistCarried() {
    if (block.getOps<CarryOp>().empty())
      return;
    Operation *begin = nullptr;
    for (Operation &op : block)
      if (phaseBegunBy(&op) == StepPhase::Optimizer)
        begin = &op;
    SmallVector<ParameterOp> parameters(block.getOps<ParameterOp>());
    for (ParameterOp parameter : llvm::reverse(parameters))
      parameter->moveBefore(&block, block.begin());
    if (!begin)
      return;
    orderUpdates(begin, [&](Operation *op) { return isOverStages(op); });
    for (auto carry : block.getOps<CarryOp>()) {
      Operation *leaf = carry.getX().getDefiningOp();
      if (!leaf || !isLeaf(leaf) || carry->isBeforeInBlock(begin))
        continue;
      if (leaf->getBlock() == &block && begin->isBeforeInBlock(leaf))
        leaf->moveBefore(begin);
      int64_t &bytes = updateBytes[storedFor(leaf)];
      bytes += byteSize(carry.getResult().getType());
      mostUpdateBytes = std::max(mostUpdateBytes, bytes);
    }
  }

  /// Moves updates whose values are results of moves to the end of the block, so that the moves can be waited for
  /// there. Nothing reads an update.
  void sinkUpdates() {
    SmallVector<UpdateOp> late;
    for (auto update : block.getOps<UpdateOp>())
      if (Operation *op = update.getValue().getDefiningOp(); op && op->getBlock() == &block && sends(op))
        late.push_back(update);
    for (UpdateOp update : late)
      update->moveBefore(block.getTerminator());
    atEnd.insert(late.begin(), late.end());
  }

  /// Moves additions of reduced gradients to the end of their task, so that the moves can be waited for there. The sum
  /// so far comes from an earlier task or is an argument. The reduced value may be rounded.
  void sinkSums() {
    int64_t task = 0;
    SmallVector<Operation *> ends; // the end of every task
    for (Operation &op : block) {
      if (isa<TaskOp>(op)) {
        ends.push_back(&op);
        ++task;
      }
      taskOf[&op] = task;
    }
    ends.push_back(block.getTerminator());
    // Goes backwards, so that an op is placed before the ops at the end of its task that read it.
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block.without_terminator()))) {
      task = taskOf[&op];
      auto isSent = [&](Value value) {
        Operation *source = value.getDefiningOp();
        return source && source->getBlock() == &block &&
               sends(isa<CastOp, DecodeSumOp>(source) ? source->getOperand(0).getDefiningOp() : source);
      };
      auto isEarlier = [&](Value value) {
        Operation *source = value.getDefiningOp();
        return source ? source->getBlock() == &block && taskOf[source] < task : value.getParentBlock() == &block;
      };
      auto is = [&](auto what) { return llvm::any_of(op.getOperands(), what); };
      auto isNeither = [&](Value value) { return !isSent(value) && !isEarlier(value); };
      // A cast of a reduced value, or a sum of codes, moves if all of its readers have moved. An addition moves if it
      // only adds a reduced value to an earlier sum.
      bool isCast = isa<CastOp, DecodeSumOp>(op) && is(isSent);
      bool adds = isa<AddOp, FusionOp>(op) && is(isSent) && is(isEarlier) && !is(isNeither);
      bool isReadLater = llvm::all_of(op.getUsers(), [&](Operation *user) {
        if (user->getBlock() == &block && taskOf[user] == task)
          return user == block.getTerminator() || (isCast && atEnd.contains(user));
        return !isCast;
      });
      if (!(isCast || adds) || !isReadLater)
        continue;
      op.moveBefore(ends[task]);
      ends[task] = &op;
      atEnd.insert(&op);
    }
  }

  /// Keeps moves from being in flight across `accumulate` if its body uses their communicator.
  void keepOutOf(AccumulateOp accumulate) {
    std::set<int64_t> used;
    accumulate.getBody().walk([&](MoveOpInterface move) {
      if (sends(move) || isa<AllToAllRowsOp>(*move))
        used.insert(number(groups, axesOf(move)));
    });
    keepOutOf(accumulate, used);
  }

  /// Keeps moves of these communicators from being in flight across `op`.
  void keepOutOf(Operation *op, const std::set<int64_t> &used) {
    int64_t at = position.lookup(op);
    for (auto [item, earliest] : llvm::zip_equal(items, notBefore))
      if (used.count(item.group) && item.place > at) {
        earliest = std::max(earliest, at);
        item.ready = std::max(item.ready, at);
      } else if (used.count(item.group)) {
        item.needed = std::min(item.needed, at);
      }
  }

  /// Returns the leaf of which `op` is a carried or rounded copy, or `op` itself.
  static Operation *storedOf(Operation *op) {
    for (; isa_and_nonnull<CastOp, CarryOp>(op); op = op->getOperand(0).getDefiningOp())
      continue;
    return op;
  }

  /// Returns true if `op` is a stored tensor (a leaf), possibly carried here, or the rounded copy of one. A rounded
  /// copy before the accumulation does not count, because its gather serves all microbatches and starts as soon as it
  /// is ready.
  bool isStored(Operation *op) const {
    Operation *leaf = storedOf(op);
    return leaf && isLeaf(leaf) && !(isa<CastOp>(op) && op->getBlock() == &block && accumulates);
  }

  /// Returns true if `op` gathers a leaf that a carry of this block brings here.
  bool gathersCarried(Operation *op) const {
    Operation *source = op->getOperand(0).getDefiningOp();
    return isa<AllGatherOp>(op) && isa_and_nonnull<CarryOp>(source) && source->getBlock() == &block && isStored(source);
  }

  /// Returns the axes of a move, or the link of a carry. Moves for which these are equal keep their order.
  static std::vector<std::string> axesOf(MoveOpInterface move) {
    if (auto carry = dyn_cast<CarryOp>(*move))
      return {carry.getLink().str()};
    std::vector<std::string> axes;
    for (StringAttr axis : move.getMoveAxes())
      axes.push_back(axis.str());
    return axes;
  }

  template <typename Key> static int64_t number(std::map<Key, int64_t> &numbers, Key key) {
    return numbers.try_emplace(std::move(key), numbers.size()).first->second;
  }

  /// Returns true if nothing reads results of `op` before the end of its task, or of the block.
  bool isReadAtEnd(Operation *op) const {
    return llvm::all_of(op->getUsers(),
                        [&](Operation *user) { return user == block.getTerminator() || atEnd.contains(user); });
  }

  /// Returns the parameter to which a leaf belongs.
  static StringRef storedFor(Operation *leaf) {
    auto state = dyn_cast<StateOp>(leaf);
    return state ? state.getParameter() : cast<ParameterOp>(leaf).getName();
  }

  /// Returns the unit of the carries for the update of a parameter. It is the unit of the previous update, unless that
  /// unit would then have more bytes than a bucket, or than the largest parameter alone.
  int64_t unitOfUpdate(StringRef parameter) {
    if (parameter != updated) {
      int64_t bytes = updateBytes.lookup(parameter);
      if (unitBytes && unitBytes + bytes > std::min(limits.bucketBytes, mostUpdateBytes)) {
        ++updateUnit;
        unitBytes = 0;
      }
      unitBytes += bytes;
      updated = parameter;
    }
    return number(units, {"update", updateUnit});
  }

  /// Returns true if `op` is an accumulation, or encodes a result of one.
  static bool isOfAccumulate(Operation *op) {
    if (auto encode = dyn_cast_or_null<EncodeAddendOp>(op))
      op = encode.getX().getDefiningOp();
    return isa_and_nonnull<AccumulateOp>(op);
  }

  /// Sums of codes are computed as soon as their addends have arrived, because the addends need more memory.
  void decodeEarly() {
    for (auto wait : llvm::to_vector(block.getOps<WaitOp>()))
      for (Value result : llvm::reverse(wait.getResults()))
        for (Operation *user : llvm::to_vector(result.getUsers()))
          if (isa<DecodeSumOp>(user) && user->getBlock() == &block)
            user->moveAfter(wait);
  }

  /// Adds a move, with the positions at which it is ready, needed and last read.
  void addItem(MoveOpInterface move) {
    Operation *op = move, *source = op->getOperand(0).getDefiningOp();
    MoveItem item;
    item.group = number(groups, axesOf(move));
    Type element = cast<RankedTensorType>(op->getOperand(0).getType()).getElementType();
    item.bytes = trafficOf(move, mesh).payload;
    item.inPlace = mayShareHome(op, 0, 0);
    item.place = position.lookup(op);
    // If the operand is the result of another move, this move is ready at its own position, and the other move is
    // needed there.
    if (gathersCarried(op)) { // endCarriesBefore() chooses the end of the carry, which must be after its leaf
      Operation *leaf = storedOf(source);
      item.ready = leaf->getBlock() == &block ? position.lookup(leaf) + 1 : 0;
    } else if (source && source->getBlock() == &block) {
      item.ready = sends(source) ? item.place : position.lookup(source);
    }
    item.needed = item.last = ops.size() - 1;
    for (auto [i, user] : llvm::enumerate(op->getUsers())) {
      Operation *ancestor = block.findAncestorOpInBlock(*user);
      int64_t at = ancestor ? position.lookup(ancestor) : item.needed;
      item.needed = std::min(item.needed, at);
      item.last = i ? std::max(item.last, at) : at;
    }
    // A move may also wait if only moves that are needed at the end read it, as in sums over several axes.
    bool feedsMoves = llvm::all_of(op->getUsers(), [&](Operation *user) {
      return sends(user) && user->getBlock() == &block && isReadAtEnd(user);
    });
    auto carry = dyn_cast<CarryOp>(op);
    bool isCarriedOut = carry && spaceOf(op->getResult(0)) != Space::Device;
    item.mayWait = isReadAtEnd(op) || feedsMoves || isCarriedOut || isOfAccumulate(source);
    // Moves that wait until the end of a task share buckets only with moves of the same task.
    item.kind = number(kinds, {static_cast<int>(move.getMoveKind()), static_cast<int>(move.getReduction()),
                               element.getIntOrFloatBitWidth(), item.mayWait ? taskOf[op] : 0});
    if (isa<AllGatherOp>(op) && isStored(source)) {
      std::string name = unitName(sourceName(source));
      item.unit = number(units, {name, gathers[storedOf(source)]++});
      item.mayWait = false;
    } else if (carry && !isCarriedOut) {
      // Carries of values that only the optimizer reads start after both passes, because the passes need the memory.
      bool isOfLeaf = source && isLeaf(source);
      if (isOfLeaf && optimizerBegin >= 0 && item.needed > optimizerBegin) {
        item.ready = std::max(item.ready, std::min(optimizerBegin, item.needed - 1));
        item.unit = unitOfUpdate(storedFor(source));
      } else {
        std::string of = isOfLeaf ? storedFor(source).str() : sourceName(op);
        item.unit = number(units, {"carry " + unitName(of), isOfLeaf ? gathers[source]++ : 1});
      }
      item.line = 1;
      item.mayWait = false;
    } else if (isa<AllGatherOp, PermuteOp>(op) && !item.mayWait) {
      // The result of a gather is larger than its operand, and a permute's result lives at the same time as its
      // operand. So they start one matrix product before their position, and not as early as the operand allows.
      int64_t product = item.place - 1;
      while (product > item.ready && flopsOf(ops[product]) == 0)
        --product;
      item.ready = std::max(item.ready, product - 1);
    }
    items.push_back(item);
  }

  /// A gather of a carried leaf starts as if the leaf were on the device, and the carry must end before that start.
  /// Sets the ends of such carries. Returns true if there is such a gather.
  bool endCarriesBefore(ArrayRef<MoveBucket> buckets) {
    llvm::DenseMap<Operation *, unsigned> itemOf;
    for (auto [i, item] : llvm::enumerate(items))
      itemOf[ops[item.place]] = i;
    bool changed = false;
    for (const MoveBucket &bucket : buckets)
      for (unsigned i : bucket.items)
        if (Operation *op = ops[items[i].place]; gathersCarried(op)) {
          items[i].ready = bucket.start;
          int64_t &needed = items[itemOf.lookup(op->getOperand(0).getDefiningOp())].needed;
          needed = std::min(needed, items[i].ready);
          changed = true;
        }
    return changed;
  }

  /// If a move reads the result of a move of a different group, it becomes ready at the wait of that move. Returns true
  /// if this changed an item, so that the problem has to be solved again.
  bool advanceChains(ArrayRef<MoveBucket> buckets) {
    llvm::DenseMap<Operation *, unsigned> bucketOf;
    for (auto [b, bucket] : llvm::enumerate(buckets))
      for (unsigned i : bucket.items)
        bucketOf[ops[items[i].place]] = b;
    bool changed = false;
    for (auto [item, earliest] : llvm::zip_equal(items, notBefore)) {
      Operation *source = ops[item.place]->getOperand(0).getDefiningOp();
      auto it = source ? bucketOf.find(source) : bucketOf.end();
      Operation *op = ops[item.place];
      if (it == bucketOf.end() || gathersCarried(op) ||
          (!isa<CarryOp>(op) && sends(source->getOperand(0).getDefiningOp())))
        continue;
      const MoveBucket &first = buckets[it->second];
      int64_t ready = std::max(first.wait, earliest);
      if (items[first.items[0]].group == item.group || ready >= item.ready)
        continue;
      item.ready = ready;
      for (unsigned i : first.items) // in the second solution, the wait of the first move must not be later
        items[i].needed = std::min(items[i].needed, first.wait);
      changed = true;
    }
    return changed;
  }

  /// Returns true if `bucket` stays a blocking move: it has one move, there is no computation between its start and its
  /// wait, its position is between them, and no other bucket of its group is in flight at that time.
  bool blocks(const MoveBucket &bucket, ArrayRef<MoveBucket> buckets) const {
    int64_t place = items[bucket.items[0]].place;
    if (bucket.items.size() > 1 || place < bucket.start || place > bucket.wait)
      return false;
    for (int64_t at = bucket.start + 1; at < bucket.wait; ++at)
      if (!sends(ops[at]) && !isLeaf(ops[at]) && !isa<UpdateOp>(ops[at]))
        return false;
    auto group = [&](const MoveBucket &b) { return items[b.items[0]].group; };
    return llvm::none_of(buckets, [&](const MoveBucket &other) {
      return &other != &bucket && group(other) == group(bucket) && other.start < bucket.wait &&
             bucket.start < other.wait;
    });
  }

  /// Replaces the moves of a bucket by one start and one wait.
  void write(const MoveBucket &bucket) {
    SmallVector<Operation *> moves;
    for (unsigned i : bucket.items)
      moves.push_back(ops[items[i].place]);
    OpBuilder builder(block.getParentOp()->getContext());
    // Starts at the same position are in the order of their buckets, so that the one needed first starts first.
    Operation *&previous = lastStart[bucket.start];
    if (!previous && bucket.start >= 0)
      previous = ops[bucket.start];
    if (previous)
      builder.setInsertionPointAfter(previous);
    else
      builder.setInsertionPointToStart(&block);

    SmallVector<Value> inputs;
    for (Operation *move : moves)
      inputs.push_back(move->getOperand(0));
    OperationState state(moves[0]->getLoc(), StartOp::getOperationName());
    state.addOperands(inputs);
    state.addTypes(TicketType::get(builder.getContext()));
    state.addRegion();
    auto start = cast<StartOp>(builder.create(state));
    Block *body = &start.getBody().emplaceBlock();
    OpBuilder inner = OpBuilder::atBlockBegin(body);
    SmallVector<Value> results;
    for (Operation *move : moves) {
      Value argument = body->addArgument(move->getOperand(0).getType(), move->getLoc());
      Operation *clone = inner.clone(*move);
      clone->setOperand(0, argument);
      results.push_back(clone->getResult(0));
    }
    YieldOp::create(inner, start.getLoc(), results);
    previous = start;

    builder.setInsertionPoint(ops[bucket.wait]);
    auto wait = WaitOp::create(builder, start.getLoc(), ValueRange(results).getTypes(), start.getTicket());
    for (auto [move, result] : llvm::zip_equal(moves, wait.getResults()))
      move->getResult(0).replaceAllUsesWith(result);
    llvm::append_range(replaced, moves);
  }

  Block &block;
  MeshAttr mesh;
  StringAttr stageAxis; ///< null: all ranks have the same program
  const ScheduleLimits &limits;
  SmallVector<Operation *> ops; ///< the ops of the block, before rewriting
  llvm::DenseMap<Operation *, int64_t> position;
  bool accumulates = false;                    ///< the block has an accumulation
  int64_t optimizerBegin = -1;                 ///< the op with which the optimizer begins
  llvm::DenseMap<Operation *, int64_t> taskOf; ///< for each op, the number of tasks that have begun before it
  llvm::DenseSet<Operation *> atEnd;           ///< sums and updates at the end of their task, or of the block
  SmallVector<MoveItem> items;
  SmallVector<int64_t> notBefore; ///< for each item, the earliest start, even if it is ready before
  std::map<std::vector<std::string>, int64_t> groups;
  std::map<std::tuple<int, int, unsigned, int64_t>, int64_t> kinds; ///< the kind of a move, and its task
  std::map<std::pair<std::string, int64_t>, int64_t> units;
  llvm::StringMap<int64_t> updateBytes;           ///< for each parameter, the bytes that its update carries in
  int64_t mostUpdateBytes = 0;                    ///< the largest of them
  StringRef updated;                              ///< the parameter whose update read the last carry
  int64_t updateUnit = 0, unitBytes = 0;          ///< the unit of that carry, and its bytes so far
  llvm::DenseMap<Operation *, int64_t> gathers;   ///< for each tensor, the number of gathers so far
  llvm::DenseMap<int64_t, Operation *> lastStart; ///< for each position, the last start written after it
  SmallVector<Operation *> replaced;
};

/// Gives moves of results of `accumulate` the locations of the values that it sums, for messages and traces. Otherwise,
/// they would have the location of `accumulate`.
void nameMoves(AccumulateOp accumulate) {
  Operation *yield = accumulate.getBody().front().getTerminator();
  for (auto [value, result] : llvm::zip_equal(yield->getOperands(), accumulate.getResults()))
    for (Operation *user : result.getUsers())
      if (isa<MoveOpInterface, EncodeAddendOp>(user) && sourceName(user) == sourceName(accumulate)) {
        user->setLoc(value.getLoc());
        if (isa<EncodeAddendOp>(user))
          for (Operation *move : user->getUsers()) {
            move->setLoc(value.getLoc());
            for (Operation *decode : move->getUsers())
              decode->setLoc(value.getLoc());
          }
      }
}

/// The pass pc-schedule. Each block is a separate problem, including the body of an accumulation.
struct Schedule : pc::impl::ScheduleBase<Schedule> {
  using ScheduleBase::ScheduleBase;

  /// First moves go into the bodies that can hide them. Then each body is scheduled, and finally the step around them.
  void runOnOperation() override {
    MeshAttr mesh = meshOf(getOperation());
    StringAttr stageAxis = stageAxisOf(getOperation());
    const ScheduleLimits limits = {.bucketBytes = bucketBytes, .depth = prefetch, .aheadBytes = prefetchBytes};
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (!function.getBody().hasOneBlock())
        continue; // pc-verify-scheduled reports this
      Block &body = function.getBody().front();
      for (auto accumulate : llvm::make_early_inc_range(body.getOps<AccumulateOp>())) {
        nameMoves(accumulate);
        bringMovesIn(accumulate);
      }
      for (auto accumulate : body.getOps<AccumulateOp>())
        BlockScheduler(accumulate.getBody().front(), mesh, stageAxis, limits).run();
      BlockScheduler(body, mesh, stageAxis, limits).run();
    }
  }
};

} // namespace
