//===- VerifyScheduled.cpp - Checks the order of moves and their dependencies ----------===//
// Runs a scheduled or planned program as streams would: one stream for computation and one per communicator. `pc.start`
// is an edge from the computation so far to its communicator, and `pc.wait` is an edge back. There are no other edges.
// Two accesses to the same bytes, one of them a write, must be ordered by edges. The verifier shares no code with the
// scheduler.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_VERIFYSCHEDULED
#include "pc/Overlap/Passes.h"

#include "pc/Cost/Cost.h"
#include "pc/IR/Calls.h"
#include "pc/IR/LeavesByName.h"
#include "pc/IR/Liveness.h"

#include <deque>
#include <map>

using namespace mlir;
using namespace pc;

namespace {

/// A vector clock: for each stream, the number of its ops that are known to be done (0 for missing streams).
struct Clock {
  SmallVector<int64_t, 4> over;

  int64_t operator[](size_t stream) const { return stream < over.size() ? over[stream] : 0; }
  void advance(size_t stream) {
    over.resize(std::max(over.size(), stream + 1));
    ++over[stream];
  }
  void join(const Clock &other) {
    over.resize(std::max(over.size(), other.over.size()));
    for (size_t i = 0; i < other.over.size(); ++i)
      over[i] = std::max(over[i], other.over[i]);
  }
};

/// One access: the stream on which it runs, its time on that stream's clock, and the op for messages.
struct Access {
  size_t stream;
  int64_t stamp; ///< the value of the stream's own clock
  Operation *op;
};

/// The last accesses to bytes, by stream.
class Memory {
public:
  /// Records an access to [begin, end). Returns the op of an earlier access that conflicts with it and is not done at
  /// `clock`, or null.
  Operation *access(int64_t begin, int64_t end, bool write, const Access &by, const Clock &clock) {
    auto it = pieces.lower_bound(begin);
    if (it != pieces.begin() && std::prev(it)->second.end > begin)
      it = cut(std::prev(it), begin);
    Operation *conflict = nullptr;
    auto check = [&](ArrayRef<Access> earlier) {
      for (const Access &access : earlier)
        if (access.stamp > clock[access.stream] && access.op != by.op)
          conflict = access.op;
    };
    auto first = it;
    for (int64_t at = begin; at < end; at = it->second.end, ++it) {
      if (it == pieces.end() || it->first > at) // no access to these bytes yet
        it = pieces.insert(it, {at, {it == pieces.end() ? end : std::min(end, it->first), {}, {}}});
      if (at == begin)
        first = it;
      if (it->second.end > end)
        cut(it, end);
      Piece &piece = it->second;
      check(piece.writes);
      if (write)
        check(piece.reads);
      note(write ? piece.writes : piece.reads, by);
    }
    if (write && !conflict && begin < end) { // all earlier accesses are done, so the bytes become one piece again
      pieces.erase(std::next(first), it);
      first->second = {end, {}, {by}};
    }
    return conflict;
  }

private:
  /// A range of bytes with equal accesses. The key in `pieces` is its first byte.
  struct Piece {
    int64_t end;
    SmallVector<Access, 2> reads, writes;
  };

  /// Records an access. The last access of each stream is enough, because earlier ones are done before it.
  static void note(SmallVectorImpl<Access> &list, const Access &by) {
    auto it = llvm::find_if(list, [&](const Access &access) { return access.stream == by.stream; });
    if (it == list.end())
      list.push_back(by);
    else
      *it = by;
  }

  /// Splits a piece at `at`; returns the second part.
  std::map<int64_t, Piece>::iterator cut(std::map<int64_t, Piece>::iterator piece, int64_t at) {
    Piece right = piece->second;
    piece->second.end = at;
    return pieces.insert(std::next(piece), {at, std::move(right)});
  }

  std::map<int64_t, Piece> pieces; ///< by first byte
};

/// Runs one step with vector clocks. `computed` is the clock of the computation, and each communicator has its own
/// clock. `memory` remembers the last accesses of every byte. An access that is not ordered after an earlier one fails.
class Streams {
public:
  /// `functions` are the functions that `body` calls.
  Streams(Block &body, TaskFunctions &functions) : functions(functions), leaves(body) {}

  /// Each op runs on the stream of its kind; other ops belong to the computation.
  LogicalResult run(Block &block) {
    for (Operation &op : block) {
      if (isLeaf(&op) || isa<MicrobatchOp>(op)) // a microbatch is a view
        continue;
      LogicalResult result = success();
      if (auto accumulate = dyn_cast<AccumulateOp>(op))
        result = run(accumulate);
      else if (auto start = dyn_cast<StartOp>(op))
        result = run(start);
      else if (auto wait = dyn_cast<WaitOp>(op))
        result = run(wait);
      else if (auto call = dyn_cast<CallOp>(op))
        result = run(call);
      else if (auto move = dyn_cast<MoveOpInterface>(op); move && hasTraffic(move.getMoveKind()))
        result = runBlocking(move);
      else
        result = compute(&op);
      if (failed(result) || failed(add(&op)))
        return failure();
    }
    return success();
  }

private:
  /// Bytes [begin, end) of the arena.
  struct Range {
    int64_t begin, end;
  };

  /// Returns the bytes of `value`. If values have no homes, every value has a separate place.
  Range rangeOf(Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value))
      if (auto accumulate = dyn_cast<AccumulateOp>(argument.getOwner()->getParentOp()))
        return rangeOf(accumulate.getInputs()[argument.getArgNumber()]);
    auto home = dyn_cast_or_null<HomeAttr>(cast<RankedTensorType>(value.getType()).getEncoding());
    if (home)
      return {home.getOffset(), home.getOffset() + byteSize(value.getType())};
    int64_t at = -1 - places.try_emplace(value, places.size()).first->second;
    return {at, at + 1};
  }

  /// Checks (S4) for one value.
  LogicalResult access(Operation *op, Value value, bool write, size_t stream, const Clock &clock) {
    Range range = rangeOf(value);
    Operation *other = memory.access(range.begin, range.end, write, {stream, clock[stream], op}, clock);
    if (!other)
      return success();
    InFlightDiagnostic diagnostic =
        op->emitOpError() << (write ? "writes" : "reads") << " what '" << other->getName().getStringRef() << "' of '"
                          << sourceName(other) << "' may still be using: there is no wait between the two (S4)";
    diagnostic.attachNote(other->getLoc()) << "the earlier access is here";
    return diagnostic;
  }

  /// Runs a task of a pipeline. A task begins and ends with no move in flight; the ops of its function are checked
  /// separately.
  LogicalResult run(CallOp call) {
    for (auto &[axes, communicator] : communicators)
      if (!communicator.underWay.empty())
        return call.emitOpError() << "is called while a move is in flight (S3)";
    if (failed(compute(call)))
      return failure();
    if (!call.getFrame())
      return success();
    int64_t frame = *call.getFrame(), end = frame + functions.of(call).frameBytes;
    return failure(memory.access(frame, end, true, {0, computed[0], call}, computed) != nullptr);
  }

  /// Adds results of `op` that the body yields to the sums over microbatches, right after `op`.
  LogicalResult add(Operation *op) {
    for (OpOperand &use : op->getUses())
      if (addedAfter(use)) {
        Value sum = use.getOwner()->getParentOp()->getResult(use.getOperandNumber());
        if (failed(access(op, use.get(), false, 0, computed)) || failed(access(op, sum, true, 0, computed)))
          return failure();
      }
    return success();
  }

  /// An op of the computation reads and writes in program order.
  LogicalResult compute(Operation *op) {
    computed.advance(0);
    for (OpOperand &use : op->getOpOperands())
      if (!addedAfter(use) && failed(access(op, use.get(), false, 0, computed)))
        return failure();
    for (Value result : op->getResults())
      if (failed(access(op, result, true, 0, computed)))
        return failure();
    if (auto update = dyn_cast<UpdateOp>(op))
      if (Value leaf = leaves.of(update))
        return access(op, leaf, true, 0, computed);
    return success();
  }

  /// A communicator: its stream, and the starts that have not been waited for.
  struct Communicator {
    size_t stream;
    Clock clock;
    std::deque<std::pair<StartOp, Clock>> underWay;
  };

  Communicator &communicatorOf(MoveOpInterface move) {
    return communicators.try_emplace(axesText(move), Communicator{communicators.size() + 1, {}, {}}).first->second;
  }

  /// Moves read and write on their communicator's stream, after the computation so far and until their wait.
  LogicalResult run(StartOp start) {
    WaitOp wait = start.getWait();
    SmallVector<MoveOpInterface> moves = start.getMoves();
    if (!wait || wait->getBlock() != start->getBlock() || !start->isBeforeInBlock(wait) || moves.empty() ||
        wait->getNumResults() != start->getNumOperands())
      return start.emitOpError() << "needs exactly one later pc.wait in its block, with one result per move (S2)";
    Communicator &communicator = communicatorOf(moves[0]);
    communicator.clock.join(computed);
    communicator.clock.advance(communicator.stream);
    for (Value input : start.getInputs())
      if (failed(access(start, input, false, communicator.stream, communicator.clock)))
        return failure();
    for (Value result : wait.getResults())
      if (failed(access(start, result, true, communicator.stream, communicator.clock)))
        return failure();
    communicator.underWay.push_back({start, communicator.clock});
    return success();
  }

  /// Checks (S3). After this op, the computation is ordered after the moves.
  LogicalResult run(WaitOp wait) {
    StartOp start = wait.getStart();
    if (!start || start.getMoves().empty())
      return wait.emitOpError() << "has no pc.start (S2)";
    Communicator &communicator = communicatorOf(start.getMoves()[0]);
    if (communicator.underWay.empty() || communicator.underWay.front().first != start)
      return wait.emitOpError() << "comes before the wait for an earlier start of the same communicator (S3)";
    computed.join(communicator.underWay.front().second);
    communicator.underWay.pop_front();
    return success();
  }

  /// A blocking move is a start and a wait in one op.
  LogicalResult runBlocking(MoveOpInterface move) {
    Communicator &communicator = communicatorOf(move);
    if (!communicator.underWay.empty())
      return move->emitOpError()
             << "is a blocking move while an earlier move of the same communicator is in flight (S3)";
    communicator.clock.join(computed);
    communicator.clock.advance(communicator.stream);
    for (Value operand : move->getOperands())
      if (failed(access(move, operand, false, communicator.stream, communicator.clock)))
        return failure();
    if (failed(access(move, move->getResult(0), true, communicator.stream, communicator.clock)))
      return failure();
    computed.join(communicator.clock);
    return success();
  }

  /// After the body, values that are added at its end are written to the sums.
  LogicalResult run(AccumulateOp accumulate) {
    Block &inner = accumulate.getBody().front();
    // Runs twice, because the second microbatch may conflict with moves of the first one that are still in flight.
    for (int64_t round = 0; round < std::min<int64_t>(2, accumulate.getMicrobatches()); ++round) {
      if (failed(run(inner)))
        return failure();
      for (OpOperand &use : inner.getTerminator()->getOpOperands())
        if (!addedAfter(use) &&
            failed(access(accumulate, accumulate.getResult(use.getOperandNumber()), true, 0, computed)))
          return failure();
    }
    return success();
  }

  TaskFunctions &functions;
  LeavesByName leaves;
  Memory memory;
  Clock computed;
  std::map<std::string, Communicator> communicators;
  llvm::DenseMap<Value, int64_t> places;
};

/// The pass pc-verify-scheduled. Task functions are checked separately, since no move is in flight at their calls.
struct VerifyScheduled : pc::impl::VerifyScheduledBase<VerifyScheduled> {
  void runOnOperation() override {
    bool failed = false;
    getOperation().walk([&](Operation *op) { failed |= mlir::failed(verifyLine(op)); });
    if (failed)
      return signalPassFailure();
    TaskFunctions functions;
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      Block &body = function.getBody().front();
      if (mlir::failed(Streams(body, functions).run(body)))
        failed = true;
    }
    if (failed)
      signalPassFailure();
  }

  /// Checks (S1).
  LogicalResult verifyLine(Operation *op) {
    Operation *parent = op->getParentOp();
    if (isa<MoveOpInterface, StartOp, WaitOp>(op) && isa_and_nonnull<FusionOp>(parent))
      return op->emitOpError() << "is a move inside a kernel, which is not allowed (S1)";
    if (op->getNumRegions() == 0 || isa<ModuleOp, FusionOp, StartOp>(op))
      return success();
    if (!isa<func::FuncOp, AccumulateOp>(op))
      return op->emitOpError() << "has a region that ranks might run a different number of times (S1)";
    if (op->getRegion(0).getBlocks().size() > 1)
      return op->emitOpError() << "has several blocks, so moves have no fixed order (S1)";
    if (isa<AccumulateOp>(op) && !isa<func::FuncOp>(parent))
      return op->emitOpError() << "is nested in another accumulation (S1)";
    return success();
  }
};

} // namespace
