//===- Blocks.cpp - Decides which values of collective matmul exist as blocks -----------===//
// A gathered value exists as n blocks along the gathered dim, and so do values that are computed from it block by
// block, up to a sum over the blocks, a reduce_scatter, or an op that needs the whole value. Invariants of the
// decisions:
//  1. A step has a legal row of its factor rule: from blocks of its split operands it computes a block of the result,
//     or an addend. A carry of a blocked value is also a step.
//  2. Only steps read a blocked gather, block by block. A gather with another reader is added to `whole`, and stays.
//  3. A step reads blocks of one window; its other split operands are sliced. If a product has moves over two axes of
//     equal size, these are recorded in `met`, and have a common window in the next round.
//  4. The algorithm ends: if `whole` grows, decisions are repeated from that gather on; if `met` changes, from the
//     beginning. `whole` never shrinks, and `met` is cleared only when `whole` grows. When neither changes any more, 1
//     to 3 hold for all ops.
//===-----------------------------------------------------------------------------===//
#include "Blocks.h"
#include "pc/Cost/Cost.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace pc;

namespace {

/// Returns true if `op` may be computed block by block according to `row`: results are blocked, or sums over the
/// blocks.
bool worksOnBlocks(Operation *op, const Row &row) {
  if (!op->hasTrait<Pointwise>() && !op->hasTrait<Rowwise>() && !isa<EinsumOp, ReduceMaxOp>(op))
    return false;
  // An offset is the start of the rank's block. It would be wrong for a smaller block within it.
  if (isa<DrawnOpInterface>(op))
    return false;
  if (auto indexed = dyn_cast<IndexedOpInterface>(op))
    for (auto [operand, state] : llvm::zip_equal(op->getOperands(), row.operands))
      if (IndexedDim dim = indexed.getIndexedDim(); operand == dim.value && state == AxisState::split(dim.dim))
        return false;
  // Values that are stored by rows have no blocks.
  auto isInParts = [](auto pair) { return std::get<1>(pair).isSplit() && rowsOf(std::get<0>(pair)); };
  if (llvm::any_of(llvm::zip_equal(op->getOperands(), row.operands), isInParts) ||
      llvm::any_of(llvm::zip_equal(op->getResults(), row.results), isInParts))
    return false;
  return row.results[0].isSplit() || (isa<EinsumOp>(op) && row.results[0].isSum());
}

} // namespace

bool pc::isProduct(Operation *op) { return isa<EinsumOp>(op) && flopsOf(op) > 0; }

BlockDecisions::BlockDecisions(Block &block, MeshAttr mesh, ArrayRef<std::string> axes, Origins &origins)
    : block(block), mesh(mesh), axes(axes), origins(origins) {
  while (!decideAll())
    ;
}

/// The reason is written as the end of a sentence about the reader. The reason for routed tokens comes first, because
/// routed tokens never have blocks.
void BlockDecisions::forStaying(llvm::function_ref<void(StayingMove)> stays) const {
  auto why = [](Operation *op, const char *other) {
    return hasRows(op) ? "works on routed tokens, which have no blocks" : other;
  };
  for (const auto &[gather, reader] : whole)
    if (reader)
      stays({cast<MoveOpInterface>(gather), reader,
             why(reader, isProduct(reader) ? "is already computed block by block along another dim, for another operand"
                                           : "needs the whole tensor at once")});
  for (auto scatter : block.getOps<ReduceScatterOp>())
    if (Operation *source = scatter.getX().getDefiningOp();
        isWindow(scatter) && !window(scatter) && source && isProduct(source))
      stays({scatter, source,
             why(source, "has blocks along another dim, other readers, or a term that only one rank adds")});
}

bool BlockDecisions::isWindow(MoveOpInterface move) const {
  return mesh.size(move.getMoveAxes()) > 1 && llvm::all_of(move.getMoveAxes(), [&](StringAttr axis) {
           return llvm::any_of(axes, [&](const std::string &name) { return isAxisOf(axis, name); });
         });
}

/// Discards all earlier decisions except `whole` and `met`. Gathers are followed forwards, then reduce_scatters
/// backwards.
bool BlockDecisions::decideAll() {
  values.clear();
  steps.clear();
  scatters.clear();
  again = false;
  followGathers();
  if (again)
    return false;
  for (auto scatter : block.getOps<ReduceScatterOp>())
    if (isWindow(scatter) && scatter.getReduction() == PartialKind::Sum)
      followScatter(scatter);
  return !again;
}

/// The window has one step for each rank of the move's axes. If two moves share a product, the window also has the axes
/// of the other move.
Window BlockDecisions::windowOf(Operation *move, ArrayAttr axes) const {
  int64_t n = 1;
  for (StringAttr axis : axes.getAsRange<StringAttr>())
    n *= mesh.size(axis);
  ArrayAttr with = met.lookup(move);
  return with ? pair(axes, with, n) : Window{axes, nullptr, n};
}

Window BlockDecisions::pair(ArrayAttr a, ArrayAttr b, int64_t n) const {
  auto first = [&](ArrayAttr list) { return mesh.index(cast<StringAttr>(list[0])); };
  return first(a) < first(b) ? Window{a, b, n} : Window{b, a, n};
}

/// If an op needs the whole gathered value, the gather is added to `whole`, all decisions after it are discarded, and
/// the loop continues from the gather.
void BlockDecisions::followGathers() {
  for (Block::iterator at = block.begin(); at != block.end();) {
    Operation *op = &*at++;
    if (auto gather = dyn_cast<AllGatherOp>(op); gather && isWindow(gather) && !whole.contains(gather)) {
      if (llvm::any_of(gather->getUsers(), isProduct))
        values[gather.getResult()] = {windowOf(gather, gather.getAxes()), int64_t(gather.getDim())};
      else
        whole.insert({gather, nullptr});
    } else if (!decide(op)) {
      if (auto [gather, reader] = neededWhole(op); gather) {
        whole.insert({gather, reader});
        again |= !met.empty();
        met.clear(); // some entries may depend on this gather's blocks
        at = gather->getIterator();
        forget(at, std::next(op->getIterator()));
      }
    }
  }
}

/// A step may read the same value block by block in one operand and need it whole in another one.
std::pair<AllGatherOp, Operation *> BlockDecisions::neededWhole(Operation *op) const {
  const BlockStep *step = this->step(op);
  std::pair<AllGatherOp, Operation *> found;
  op->walk([&](Operation *inner) { // an op with a region reads the operands of the ops in it
    for (OpOperand &use : inner->getOpOperands()) {
      const Blocked *operand = blocked(use.get());
      auto gather = use.get().getDefiningOp<AllGatherOp>();
      if (operand && gather && !(inner == op && step && step->reads(use.getOperandNumber(), *operand)))
        found = {gather, inner};
    }
    return found.first ? WalkResult::interrupt() : WalkResult::advance();
  });
  return found;
}

/// Removes the decisions about these ops and their results.
void BlockDecisions::forget(Block::iterator begin, Block::iterator end) {
  for (auto op = begin; op != end; ++op) {
    steps.erase(&*op);
    for (Value result : op->getResults())
      values.erase(result);
  }
}

/// Takes the first legal row that splits a blocked operand along its blocks. If another operand is blocked with a
/// different window, the moves of both operands share a product. This is recorded in `met`, and the next round gives
/// the two moves a common window.
bool BlockDecisions::decide(Operation *op) {
  if (auto carry = dyn_cast<CarryOp>(op)) {
    if (const Blocked *known = blocked(carry.getX())) {
      const Blocked from = *known;
      const AxisState state = AxisState::split(from.dim);
      steps[op] = {from.window, Row{{state}, {state}}};
      values[carry.getResult()] = from;
    }
    return false;
  }
  auto factored = dyn_cast<FactorOpInterface>(op);
  if (!factored || op->getNumResults() != 1)
    return false;
  for (auto [i, operand] : llvm::enumerate(op->getOperands()))
    if (const Blocked *from = blocked(operand))
      for (const Row &row : legalRows(factored.getFactorRule())) {
        if (row.operands[i] != AxisState::split(from->dim) || !worksOnBlocks(op, row))
          continue;
        bool meets = false;
        for (auto [other, state] : llvm::zip_equal(op->getOperands(), row.operands))
          if (const Blocked *second = blocked(other); second && state == AxisState::split(second->dim))
            if (std::optional<Window> window = common(from->window, second->window)) {
              take(operand, *window);
              take(other, *window);
              meets |= again; // the next round uses their common window
            }
        Window window = from->window;
        steps[op] = {window, row};
        if (row.results[0].isSplit())
          values[op->getResult(0)] = {window, row.results[0].dim()};
        return meets;
      }
  return false;
}

/// Two rings over disjoint axes of equal size become exchanges over both axes. If one of the windows already consists
/// of such exchanges, and the other is a ring over one of its axes, the common window is that of the exchanges.
std::optional<Window> BlockDecisions::common(const Window &a, const Window &b) const {
  if (a == b || a.n != b.n || (a.with && b.with))
    return std::nullopt;
  const Window &one = a.with ? b : a, &two = a.with ? a : b;
  if (two.with)
    return one.axes == two.axes || one.axes == two.with ? std::optional(two) : std::nullopt;
  bool disjoint = llvm::none_of(one.axes, [&](Attribute axis) { return llvm::is_contained(two.axes, axis); });
  return disjoint ? std::optional(pair(one.axes, two.axes, one.n)) : std::nullopt;
}

/// Goes back from `value` through the steps that compute it, block by block, to the gathers that they begin with.
void BlockDecisions::take(Value value, const Window &window) {
  SmallVector<Value> list = {value};
  llvm::DenseSet<Value> seen;
  while (!list.empty()) {
    Operation *op = list.pop_back_val().getDefiningOp();
    if (auto gather = dyn_cast_or_null<AllGatherOp>(op))
      take(gather, gather.getAxes(), window);
    else if (const BlockStep *step = op ? this->step(op) : nullptr)
      for (auto [i, operand] : llvm::enumerate(op->getOperands()))
        if (const Blocked *from = blocked(operand); from && step->reads(i, *from) && seen.insert(operand).second)
          list.push_back(operand);
  }
}

/// The sum must come from products that are computed block by block along the scatter's dim. If the sum is already
/// blocked with another window, the two moves share a product, which is recorded for the next round.
void BlockDecisions::followScatter(ReduceScatterOp scatter) {
  if (hasLoneAddend(scatter.getX(), scatter.getAxes(), origins))
    return;
  Blocked wanted{windowOf(scatter, scatter.getAxes()), int64_t(scatter.getDim())};
  bool found = false;
  SmallVector<std::pair<Operation *, BlockStep>> made;
  if (!follow(scatter.getX(), wanted, made, found)) {
    const Blocked *known = blocked(scatter.getX());
    if (known && found && known->dim == wanted.dim)
      if (std::optional<Window> window = common(known->window, wanted.window)) {
        take(scatter.getX(), *window);
        take(scatter, scatter.getAxes(), *window);
      }
    return;
  }
  if (!found)
    return;
  scatters[scatter] = wanted.window;
  for (auto &[op, step] : made) {
    values[op->getResult(0)] = {wanted.window, step.row.results[0].dim()};
    steps[op] = step;
  }
}

/// Goes back through ops with one reader. An op that can be computed along `wanted` is added to `made`, and its split
/// operands are followed in turn. An operand that cannot be followed is sliced.
bool BlockDecisions::follow(Value value, const Blocked &wanted,
                            SmallVectorImpl<std::pair<Operation *, BlockStep>> &made, bool &found) {
  Operation *op = value.getDefiningOp();
  if (const Blocked *known = blocked(value)) {
    found |= isMadeByProduct(value);
    return known->window == wanted.window && known->dim == wanted.dim;
  }
  auto factored = dyn_cast_or_null<FactorOpInterface>(op);
  if (!factored || op->getBlock() != &block || op->getNumResults() != 1 || !value.hasOneUse() || step(op))
    return false;
  for (const Row &row : legalRows(factored.getFactorRule())) {
    if (row.results[0] != AxisState::split(wanted.dim) || !worksOnBlocks(op, row))
      continue;
    BlockStep step{wanted.window, row};
    for (auto [i, operand] : llvm::enumerate(op->getOperands()))
      if (const Blocked *known = blocked(operand);
          known && operand.getDefiningOp<AllGatherOp>() && !step.reads(i, *known))
        return false; // `op` does not read it block by block, see 2
    made.push_back({op, step});
    if (isProduct(op)) {
      found = true;
      return true; // `op` reads slices of its operands
    }
    for (auto [i, operand] : llvm::enumerate(op->getOperands()))
      if (row.operands[i].isSplit() && !blocked(operand)) // if this fails, the operand is sliced
        (void)follow(operand, {wanted.window, row.operands[i].dim()}, made, found);
    return true;
  }
  return false;
}

/// Returns true if a matrix product is among the ops that compute `value` block by block.
bool BlockDecisions::isMadeByProduct(Value value) const {
  SmallVector<Value> list = {value};
  llvm::DenseSet<Value> seen;
  while (!list.empty()) {
    Operation *op = list.pop_back_val().getDefiningOp();
    if (!op || !step(op))
      continue;
    if (isProduct(op))
      return true;
    for (Value operand : op->getOperands())
      if (blocked(operand) && seen.insert(operand).second)
        list.push_back(operand);
  }
  return false;
}
