//===- RoundExperts.cpp - Rows of experts in rounds ----------------------------------------===//
// Rows are independent of each other, and an op that reads rows and does not produce rows is linear in them. So the
// rows of a round are computed, read and freed, and the results of all rounds are added. Only the rows of one round
// exist at a time.
//
// Ops on rows are divided into passes: an op belongs to a later pass if it depends on results of rows of an earlier
// pass, as the backward pass does, or if it is in another task of a pipeline. Rows of an earlier pass are computed
// again.
//===-----------------------------------------------------------------------------===//
#include "RoundExperts.h"

#include "pc/IR/MoveRows.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace pc;

namespace {

/// Rewrites one block, pass by pass. `instead` maps a value to its copy in a pass. `done` receives the replaced ops,
/// which the caller erases.
class RowRounds {
public:
  RowRounds(Block &block, const RowsInRounds &rows, SmallVectorImpl<Operation *> &done)
      : block(block), rows(rows), done(done) {}

  bool run() {
    findPasses();
    for (auto &[number, ops] : passes)
      if (!computeAgain(ops) || !unroll(ops))
        return false;
    return true;
  }

private:
  bool readsRows(Operation *op) const { return llvm::any_of(op->getOperands(), rows.areRows); }
  bool makesRows(Operation *op) const { return llvm::any_of(op->getResults(), rows.areRows); }

  /// A pass consists of the ops that depend on the same number of earlier passes. One loop over rounds repeats them.
  void findPasses() {
    llvm::DenseMap<Value, int64_t> after; // the number of passes that a value depends on
    int64_t task = 0;
    std::map<std::pair<int64_t, int64_t>, int64_t> numbers;
    for (Operation &op : block) {
      task += isa<TaskOp, SeedOp>(op);
      int64_t pass = 0;
      for (Value operand : op.getOperands())
        pass = std::max(pass, after.lookup(operand));
      if (makesRows(&op) || readsRows(&op)) {
        auto number = numbers.try_emplace({task, pass}, numbers.size()).first->second;
        passes[number].push_back(&op);
        pass += !makesRows(&op);
      }
      for (Value result : op.getResults())
        after[result] = pass;
    }
  }

  bool refuse(Operation *op) const {
    if (rows.isFirst())
      op->emitError() << "passes routed tokens from one task's function to another, which --experts-limit="
                      << rows.limit << " does not support; raise --inline-tasks so that tasks are inlined";
    return false;
  }

  /// `ops` may read rows that they do not compute. Adds the ops that compute these rows before `ops`.
  bool computeAgain(SmallVector<Operation *> &ops) {
    llvm::SetVector<Operation *> own(ops.begin(), ops.end()), again;
    SmallVector<Operation *> work(ops);
    for (Operation *op : ops)
      if (isa<CallOp>(op) || op->hasTrait<OpTrait::IsTerminator>())
        return refuse(op);
    // Rows of earlier passes have been freed by then, so the ops that compute them run again in each round.
    while (!work.empty()) {
      Operation *op = work.pop_back_val();
      for (Value operand : op->getOperands()) {
        if (!rows.areRows(operand))
          continue;
        Operation *maker = operand.getDefiningOp();
        if (!maker || isa<CallOp>(maker))
          return refuse(op);
        if (!own.contains(maker) && again.insert(maker))
          work.push_back(maker);
      }
    }
    SmallVector<Operation *> before = again.takeVector();
    llvm::sort(before, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    // These ops also use the values of the new pass, such as weights that were gathered again.
    for (Operation *op : before)
      for (Value operand : op->getOperands())
        for (Operation *reader : ops)
          for (Value other : reader->getOperands())
            if (!rows.areRows(operand) && other != operand && operand.getType() == other.getType() &&
                rows.isSame(operand, other))
              instead.try_emplace({ops.front(), operand}, other);
    before.append(ops.begin(), ops.end());
    ops = std::move(before);
    return true;
  }

  /// Repeats the ops of a pass once per round, and adds up the values that other ops read. Returns false if that is
  /// impossible.
  bool unroll(ArrayRef<Operation *> ops) {
    // The pass's own ops are the last ones in `ops`. Other ops between them that depend on them are moved after them.
    Operation *last = ops.back(), *key = nullptr;
    llvm::SetVector<Operation *> own;
    for (Operation *op : ops)
      if (!known.contains(op)) {
        key = key ? key : op;
        own.insert(op);
        known.insert(op);
      }
    llvm::append_range(done, own);
    if (llvm::all_of(own, [&](Operation *op) { return makesRows(op); }))
      return true; // its rows are for later passes, which compute them again
    llvm::DenseSet<Operation *> dependent;
    SmallVector<Operation *> moved;
    for (Operation *op = key; op != last; op = op->getNextNode()) {
      auto isMade = [&](Value operand) {
        Operation *maker = operand.getDefiningOp();
        return maker && (dependent.contains(maker) || own.contains(maker));
      };
      if (!own.contains(op) && llvm::any_of(op->getOperands(), isMade)) {
        dependent.insert(op);
        moved.push_back(op);
      }
    }
    for (Operation *op : llvm::reverse(moved))
      op->moveAfter(last);

    OpBuilder builder(last);
    EinsumOp first;
    for (Operation *op : ops)
      if (auto einsum = dyn_cast<EinsumOp>(op); einsum && einsum.getMask() && !first)
        first = einsum;
    Value mask = here(key, first.getMask());
    llvm::MapVector<Value, Value> sums;
    // Each round has a mask of only its own rows; its results are added to the sums of earlier rounds.
    for (int64_t round = 0; round < rows.rounds; ++round) {
      auto attribute = [&](int64_t number) { return builder.getI64IntegerAttr(number); };
      Value part = RoundOfRowsOp::create(builder, first.getLoc(), mask.getType(), mask, attribute(round),
                                         attribute(rows.rounds), attribute(rows.limit));
      IRMapping mapping;
      for (Operation *op : ops) {
        for (Value operand : op->getOperands())
          if (!mapping.contains(operand))
            mapping.map(operand, here(key, operand));
        IRMapping masked = mapping;
        auto einsum = dyn_cast<EinsumOp>(op);
        if (einsum && einsum.getMask())
          masked.map(einsum.getMask(), part);
        Operation *clone = builder.clone(*op, masked);
        if (makesRows(op)) {
          mapping.map(op->getResults(), clone->getResults());
          continue;
        }
        add(builder, op->getResult(0), clone->getResult(0), sums);
      }
    }
    for (auto &[value, sum] : sums) {
      if (sum.getType() != value.getType())
        sum = CastOp::create(builder, value.getLoc(), value.getType(), sum);
      value.replaceAllUsesWith(sum);
    }
    return true;
  }

  /// Adds the results of a round; sums are f32, and are rounded at the end.
  static void add(OpBuilder &builder, Value of, Value more, llvm::MapVector<Value, Value> &sums) {
    more.setType(cast<RankedTensorType>(of.getType()).clone(builder.getF32Type()));
    Value &sum = sums[of];
    sum = sum ? AddOp::create(builder, of.getLoc(), sum.getType(), sum, more).getResult() : more;
  }
  /// The version of a value that the pass beginning at `key` reads.
  Value here(Operation *key, Value value) const {
    auto it = instead.find({key, value});
    return it == instead.end() ? value : it->second;
  }

  Block &block;
  const RowsInRounds &rows;
  llvm::MapVector<int64_t, SmallVector<Operation *>> passes;
  llvm::DenseMap<std::pair<Operation *, Value>, Value> instead;
  llvm::DenseSet<Operation *> known;
  SmallVectorImpl<Operation *> &done;
};

} // namespace

bool pc::roundExperts(Block &block, const RowsInRounds &rows, SmallVectorImpl<Operation *> &done) {
  return RowRounds(block, rows, done).run();
}
