//===- WindowProducts.cpp - Gathers and reduce_scatters become steps with partial products ----===//
// Collective matmul. A gathered value exists as n blocks along the gathered dim, and so do values that are computed
// from it block by block, up to a sum over the blocks, a reduce_scatter, or an op that needs the whole value.
// What holds, and why the result is correct:
//  1. `Decisions` says which values are blocked (window: order of the blocks; dim) and which ops are steps. A step has
//     a legal row of its factor rule: on blocks of its split operands it gives a block of the result, or an addend.
//  2. A blocked gather is read by steps only, block by block. One that is read otherwise goes to `whole`, and stays.
//  3. A step reads blocks of one window; its other split operands are sliced. Moves over two axes of one size that meet
//     in a product are noted in `met`, and have one window in the next round.
//  4. It ends: if `whole` grows, decisions go back to that gather; if `met` changes, to the beginning. `whole` never
//     shrinks, and `met` is emptied only when `whole` grows. When neither changes any more, 1 to 3 hold for all ops.
//  5. `Writer` makes each block once, where its first reader stands, in the order of the ring. What needs a whole value
//     reads it put together by `pc.insert`. After: no blocked gather, and no scatter that has a window, is left.
// Reference: S. Wang et al., "Overlap communication with dependent computation via decomposition in large deep learning
// models", ASPLOS 2023.
//===-----------------------------------------------------------------------------===//
#include "Windows.h"
#include "pc/Cost/Cost.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace pc;

namespace {

/// The order in which n blocks are worked on. A ring (`with` is null): on coordinate i of `axes`, step t works on the
/// block of coordinate (i - t) mod n. Two axes whose moves meet in a product (`with` is the minor one): on coordinates
/// (i, j), step t works on the block of coordinate k with i + j + k = t mod n, for the moves over either axis. Blocks
/// are then sent directly from their owners, because rings would need the initial skew of Cannon's algorithm, which
/// sends more.
struct Window {
  ArrayAttr axes, with;
  int64_t n = 0;
  bool operator==(const Window &other) const { return axes == other.axes && with == other.with; }

  /// Of the two axes, the one that is not `own`.
  ArrayAttr other(ArrayAttr own) const { return own == axes ? with : axes; }
};

/// A value that exists as blocks along `dim`.
struct Blocked {
  Window window;
  int64_t dim = 0;
};

/// How an op is computed block by block: the row says which operands and results are blocked, and along which dim.
struct BlockStep {
  Window window;
  Row row;

  bool reads(unsigned operand, const Blocked &blocked) const {
    return window == blocked.window && row.operands[operand] == AxisState::split(blocked.dim);
  }
};

/// The type of a block along `dim`.
RankedTensorType blockType(Type whole, int64_t dim, int64_t n) {
  auto tensor = cast<RankedTensorType>(whole);
  SmallVector<int64_t> shape(tensor.getShape());
  shape[dim] /= n;
  return RankedTensorType::get(shape, tensor.getElementType());
}

/// Whether `op` may be computed block by block as `row` says: results are blocked, or sums over the blocks.
bool takesBlocks(Operation *op, const Row &row) {
  if (!op->hasTrait<Pointwise>() && !op->hasTrait<Rowwise>() && !isa<EinsumOp, ReduceMaxOp>(op))
    return false;
  // An offset says where the rank's block begins, not a block of that.
  if (isa<DrawnOpInterface>(op))
    return false;
  if (auto indexed = dyn_cast<IndexedOpInterface>(op))
    for (auto [operand, state] : llvm::zip_equal(op->getOperands(), row.operands))
      if (IndexedDim dim = indexed.getIndexedDim(); operand == dim.value && state == AxisState::split(dim.dim))
        return false;
  // What is stored by rows has no blocks.
  auto isInParts = [](auto pair) { return std::get<1>(pair).isSplit() && rowsOf(std::get<0>(pair)); };
  if (llvm::any_of(llvm::zip_equal(op->getOperands(), row.operands), isInParts) ||
      llvm::any_of(llvm::zip_equal(op->getResults(), row.results), isInParts))
    return false;
  return row.results[0].isSplit() || (isa<EinsumOp>(op) && row.results[0].isSum());
}

bool hasRows(Operation *op) {
  auto isRows = [](Value value) { return bool(rowsOf(value)); };
  return llvm::any_of(op->getOperands(), isRows) || llvm::any_of(op->getResults(), isRows);
}
bool isProduct(Operation *op) { return isa<EinsumOp>(op) && flopsOf(op) > 0; }

//===---------------------------------------------------------------------------===//
// Which values are blocked
//===---------------------------------------------------------------------------===//

class Decisions {
public:
  Decisions(Block &block, MeshAttr mesh, ArrayRef<std::string> axes) : block(block), mesh(mesh), axes(axes) {
    while (!decideAll())
      ;
  }

  /// Null where the value is not blocked.
  const Blocked *blocked(Value value) const {
    auto it = values.find(value);
    return it == values.end() ? nullptr : &it->second;
  }
  const BlockStep *step(Operation *op) const {
    auto it = steps.find(op);
    return it == steps.end() ? nullptr : &it->second;
  }
  /// Null where the scatter stays one.
  const Window *window(ReduceScatterOp scatter) const {
    auto it = scatters.find(scatter);
    return it == scatters.end() ? nullptr : &it->second;
  }

  /// Calls `stays` for gathers that feed products, and reduce_scatters of products, that are not rewritten.
  void forStaying(llvm::function_ref<void(StayingMove)> stays) const {
    auto why = [](Operation *op, const char *other) {
      return hasRows(op) ? "has values by rows, without blocks" : other;
    };
    for (const auto &[gather, reader] : whole)
      if (reader)
        stays({cast<MoveOpInterface>(gather), reader,
               why(reader,
                   isProduct(reader) ? "goes by blocks of another operand, over another dim" : "needs all of it")});
    for (auto scatter : block.getOps<ReduceScatterOp>())
      if (Operation *source = scatter.getX().getDefiningOp();
          isWindow(scatter) && !window(scatter) && source && isProduct(source))
        stays({scatter, source,
               why(source, "has its blocks along another dim, other readers, or an addend of one rank alone")});
  }

private:
  bool isWindow(MoveOpInterface move) const {
    return mesh.size(move.getMoveAxes()) > 1 && llvm::all_of(move.getMoveAxes(), [&](StringAttr axis) {
             return llvm::any_of(axes, [&](const std::string &name) { return isAxisOf(axis, name); });
           });
  }

  /// One round. False if `met` changed, so that another round is needed.
  bool decideAll() {
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

  /// The window of a move over `axes`: a ring, or exchanges over two axes if it met a move over another one.
  Window windowOf(Operation *move, ArrayAttr axes) const {
    int64_t n = 1;
    for (StringAttr axis : axes.getAsRange<StringAttr>())
      n *= mesh.size(axis);
    ArrayAttr with = met.lookup(move);
    return with ? pair(axes, with, n) : Window{axes, nullptr, n};
  }
  Window pair(ArrayAttr a, ArrayAttr b, int64_t n) const {
    auto first = [&](ArrayAttr list) { return mesh.index(cast<StringAttr>(list[0])); };
    return first(a) < first(b) ? Window{a, b, n} : Window{b, a, n};
  }

  /// Decides ops from gathers on, in program order. At an op that needs a gather whole, goes back to the gather and
  /// forgets what was decided since.
  void followGathers() {
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
          met.clear(); // some of it may have followed from this gather's blocks
          at = gather->getIterator();
          forget(at, std::next(op->getIterator()));
        }
      }
    }
  }

  /// A blocked gather that `op`, or an op in its region, reads otherwise than block by block; and that op.
  std::pair<AllGatherOp, Operation *> neededWhole(Operation *op) const {
    const BlockStep *step = this->step(op);
    std::pair<AllGatherOp, Operation *> found;
    op->walk([&](Operation *inner) { // an op with a region reads what the ops in it read
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

  void forget(Block::iterator begin, Block::iterator end) {
    for (auto op = begin; op != end; ++op) {
      steps.erase(&*op);
      for (Value result : op->getResults())
        values.erase(result);
    }
  }

  /// Makes `op` a step if it can work on the blocks that it reads. True if that let moves meet which had not met
  /// before.
  bool decide(Operation *op) {
    auto factored = dyn_cast<FactorOpInterface>(op);
    if (!factored || op->getNumResults() != 1)
      return false;
    for (auto [i, operand] : llvm::enumerate(op->getOperands()))
      if (const Blocked *from = blocked(operand))
        for (const Row &row : legalRows(factored.getFactorRule())) {
          if (row.operands[i] != AxisState::split(from->dim) || !takesBlocks(op, row))
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

  /// The window in which moves of both orders can meet, if there is one and they differ so far.
  std::optional<Window> common(const Window &a, const Window &b) const {
    if (a == b || a.n != b.n || (a.with && b.with))
      return std::nullopt;
    const Window &one = a.with ? b : a, &two = a.with ? a : b;
    if (two.with)
      return one.axes == two.axes || one.axes == two.with ? std::optional(two) : std::nullopt;
    bool disjoint = llvm::none_of(one.axes, [&](Attribute axis) { return llvm::is_contained(two.axes, axis); });
    return disjoint ? std::optional(pair(one.axes, two.axes, one.n)) : std::nullopt;
  }

  /// Notes in `met` that the gathers from which the blocks of `value` come meet a move of `window`'s other axis. A
  /// gather that met another move before keeps that one.
  void take(Value value, const Window &window) {
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
  void take(Operation *move, ArrayAttr axes, const Window &window) {
    again |= met.try_emplace(move, window.other(axes)).second;
  }

  /// Decides ops from a reduce_scatter backwards, up to the products whose results it sums.
  void followScatter(ReduceScatterOp scatter) {
    if (hasLoneAddend(scatter.getX(), scatter.getAxes()))
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

  bool follow(Value value, const Blocked &wanted, SmallVectorImpl<std::pair<Operation *, BlockStep>> &made,
              bool &found) {
    Operation *op = value.getDefiningOp();
    if (const Blocked *known = blocked(value)) {
      found |= isMadeByProduct(value);
      return known->window == wanted.window && known->dim == wanted.dim;
    }
    auto factored = dyn_cast_or_null<FactorOpInterface>(op);
    if (!factored || op->getBlock() != &block || op->getNumResults() != 1 || !value.hasOneUse() || step(op))
      return false;
    for (const Row &row : legalRows(factored.getFactorRule())) {
      if (row.results[0] != AxisState::split(wanted.dim) || !takesBlocks(op, row))
        continue;
      BlockStep step{wanted.window, row};
      for (auto [i, operand] : llvm::enumerate(op->getOperands()))
        if (const Blocked *known = blocked(operand);
            known && operand.getDefiningOp<AllGatherOp>() && !step.reads(i, *known))
          return false; // `op` needs it otherwise than block by block, see 2
      made.push_back({op, step});
      if (isProduct(op)) {
        found = true;
        return true; // reads slices of its operands
      }
      for (auto [i, operand] : llvm::enumerate(op->getOperands()))
        if (row.operands[i].isSplit() && !blocked(operand)) // if this fails, the operand is sliced
          (void)follow(operand, {wanted.window, row.operands[i].dim()}, made, found);
      return true;
    }
    return false;
  }

  bool isMadeByProduct(Value value) const {
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

  Block &block;
  MeshAttr mesh;
  ArrayRef<std::string> axes;
  bool again = false;
  llvm::DenseMap<Value, Blocked> values;
  llvm::DenseMap<Operation *, BlockStep> steps;
  llvm::DenseMap<Operation *, Window> scatters;
  llvm::DenseMap<Operation *, ArrayAttr> met;      ///< per move: the axes of the moves that it meets in products
  llvm::MapVector<Operation *, Operation *> whole; ///< gathers that stay, and the op that needs each, if any
};

//===---------------------------------------------------------------------------===//
// Writing the steps
//===---------------------------------------------------------------------------===//

class Writer {
public:
  Writer(Block &block, const Decisions &decisions)
      : block(block), decisions(decisions), builder(block.getParentOp()->getContext()) {}

  void run(SmallVectorImpl<ArrayAttr> &windowed) {
    SmallVector<Operation *> replaced;
    for (Operation *op : llvm::to_vector(llvm::make_pointer_range(block))) {
      builder.setInsertionPoint(op);
      if (isa<TaskOp, SeedOp>(op)) {
        slices.clear(); // slice again in the next pass or task, rather than keep slices for it
        if (isa<TaskOp>(op))
          finish();
        continue;
      }
      auto scatter = dyn_cast<ReduceScatterOp>(op);
      if (const Window *window = scatter ? decisions.window(scatter) : nullptr) {
        windowed.push_back(scatter.getAxes());
        scatter.getResult().replaceAllUsesWith(window->with ? exchangedSum(scatter, *window) : ringOf(scatter));
      } else if (op->getNumResults() == 1 && decisions.blocked(op->getResult(0))) {
        if (auto gather = dyn_cast<AllGatherOp>(op))
          windowed.push_back(gather.getAxes());
        pending.push_back(op->getResult(0));
      } else if (decisions.step(op)) {
        op->getResult(0).replaceAllUsesWith(sumOf(op));
      } else {
        giveWhole(op);
        continue;
      }
      replaced.push_back(op);
    }
    for (Operation *op : llvm::reverse(replaced))
      op->erase();
    for (Operation *op : broadcasts)
      if (op->use_empty())
        op->erase();
  }

private:
  /// At the end of a pipeline task: makes the blocks that stand in this task and have no reader yet.
  void finish() {
    for (Value value : pending)
      for (int64_t t = 0, n = decisions.blocked(value)->window.n; t < n; ++t)
        makeBlock(value, t, true);
    pending.clear();
  }

  Value permute(Value x, ArrayAttr axes, Location loc, int64_t shift = 1, ArrayAttr with = {}) {
    return PermuteOp::create(builder, loc, x.getType(), x, axes, shift, with);
  }
  Value add(Value a, Value b) { return AddOp::create(builder, a.getLoc(), a.getType(), a, b); }

  /// Block `t` of `value`, made if it does not exist. With `inOrder`, blocks 0 to t - 1 are made first, which is the
  /// order in which they come round the ring. A reduce_scatter needs its addends in another order and passes false.
  Value makeBlock(Value value, int64_t t, bool inOrder) {
    Operation *op = value.getDefiningOp();
    if (auto gather = dyn_cast<AllGatherOp>(op)) {
      const Window &window = decisions.blocked(value)->window;
      SmallVector<Value> &made = blocks[value];
      made.resize(window.n);
      if (window.with && !made[t]) // directly from its owner; pc-schedule starts it one product ahead
        made[t] = permute(gather.getX(), gather.getAxes(), gather.getLoc(), t, window.other(gather.getAxes()));
      if (window.with)
        return made[t];
      // The permute of block t + 1 comes before the work on block t, to be under way meanwhile.
      made[0] = gather.getX();
      for (int64_t u = 1; u < std::min(window.n, t + 2); ++u)
        if (!made[u])
          made[u] = permute(made[u - 1], gather.getAxes(), gather.getLoc());
      return made[t];
    }
    if (inOrder)
      for (int64_t u = 0; u < t; ++u)
        makeBlock(value, u, false);
    auto known = [&]() -> Value & {
      SmallVector<Value> &made = blocks[value];
      made.resize(decisions.blocked(value)->window.n);
      return made[t];
    };
    if (Value there = known())
      return there;
    const Blocked &blocked = *decisions.blocked(value);
    Value made = cloneFor(op, t, blockType(value.getType(), blocked.dim, blocked.window.n), inOrder);
    return known() = made;
  }

  /// A clone of `op` that reads block `t` of its split operands.
  Value cloneFor(Operation *op, int64_t t, Type type, bool inOrder) {
    const BlockStep &step = *decisions.step(op);
    SmallVector<Value> operands;
    for (auto [i, operand] : llvm::enumerate(op->getOperands()))
      operands.push_back(step.row.operands[i].isSplit() ? blockOf(operand, step, i, t, inOrder || isProduct(op))
                                                        : wholeOf(operand));
    Operation *clone = builder.clone(*op);
    clone->setOperands(operands);
    clone->getResult(0).setType(type);
    return clone->getResult(0);
  }

  Value blockOf(Value operand, const BlockStep &step, unsigned number, int64_t t, bool inOrder) {
    if (const Blocked *blocked = decisions.blocked(operand); blocked && step.reads(number, *blocked))
      return makeBlock(operand, t, inOrder);
    int64_t dim = step.row.operands[number].dim();
    RankedTensorType type = blockType(operand.getType(), dim, step.window.n);
    Value whole = wholeOf(operand);
    // All blocks of a broadcast along `dim` are equal: broadcast to the size of a block, rather than slice.
    if (auto einsum = whole.getDefiningOp<EinsumOp>();
        einsum && einsum.getInputs().size() == 1 && !decisions.step(einsum))
      for (const Row &row : legalRows(einsum.getFactorRule()))
        if (row.results[0] == AxisState::split(dim) &&
            llvm::all_of(row.operands, [](AxisState state) { return state.isWhole(); })) {
          Operation *clone = builder.clone(*einsum);
          clone->getResult(0).setType(type);
          broadcasts.insert(einsum);
          return clone->getResult(0);
        }
    ArrayAttr axes = step.window.axes, with = step.window.with;
    Value &slice = slices[{{whole, {axes, with}}, {dim, t}}];
    if (!slice)
      slice = SliceOp::create(builder, whole.getLoc(), type, whole, dim, axes, t, with);
    return slice;
  }

  /// The whole value; if it is blocked, put together from its blocks.
  Value wholeOf(Value value) {
    const Blocked *blocked = decisions.blocked(value);
    if (!blocked)
      return value;
    for (int64_t t = 0; t < blocked->window.n; ++t)
      insert(value, t);
    return wholes[value].back();
  }

  /// Makes the whole value with blocks 0 to `t` in place: `wholes[value][t]`.
  void insert(Value value, int64_t t) {
    if (static_cast<int64_t>(wholes[value].size()) > t)
      return;
    const Blocked &blocked = *decisions.blocked(value);
    Value block = makeBlock(value, t, true);
    SmallVector<Value> &made = wholes[value];
    made.push_back(InsertOp::create(builder, value.getLoc(), value.getType(), block, t ? made[t - 1] : Value(),
                                    blocked.dim, blocked.window.axes, t, blocked.window.with));
  }

  /// Lets `op`, which is no step, read whole values.
  void giveWhole(Operation *op) {
    SmallVector<OpOperand *> uses;
    op->walk([&](Operation *inner) {
      for (OpOperand &use : inner->getOpOperands())
        if (decisions.blocked(use.get()))
          uses.push_back(&use);
    });
    int64_t most = 0;
    for (OpOperand *use : uses)
      most = std::max(most, decisions.blocked(use->get())->window.n);
    for (int64_t t = 0; t < most; ++t) // block by block over all operands, so that no insert waits for a later block
      for (OpOperand *use : uses)
        if (t < decisions.blocked(use->get())->window.n)
          insert(use->get(), t);
    for (OpOperand *use : uses)
      use->set(wholes[use->get()].back());
  }

  /// Whether all ranks along `axes` have the same `value`; false where this block does not say so.
  bool isSameOver(ArrayAttr axes, Value value) {
    auto [known, isNew] = same.try_emplace({axes, value}, false);
    if (!isNew)
      return known->second;
    Operation *op = value.getDefiningOp();
    bool result = false;
    if (auto gather = dyn_cast_if_present<AllGatherOp>(op))
      result = gather.getAxes() == axes;
    else if (op && op->getNumOperands() && (op->hasTrait<Pointwise>() || op->hasTrait<Rowwise>() || isa<EinsumOp>(op)))
      result = llvm::all_of(op->getOperands(), [&](Value operand) { return isSameOver(axes, operand); });
    return same[{axes, value}] = result;
  }

  /// The sum of what `op` gives on each of its blocks. Ranks have their blocks in different orders, and the bits of a
  /// sum of more than two depend on it: one that all are to have alike (the gradient of a replicated bias) is added up
  /// by a move.
  Value sumOf(Operation *op) {
    Type type = op->getResult(0).getType(), partial = inF32(type);
    const Window &window = decisions.step(op)->window;
    Value sum;
    auto isSame = [&](ArrayAttr axes) { return axes && isSameOver(axes, op->getResult(0)); };
    if (ArrayAttr axes = isSame(window.axes) ? window.axes : window.with; window.n > 2 && isSame(axes))
      sum = AllReduceOp::create(builder, op->getLoc(), partial, PartialKind::Sum, cloneFor(op, 0, partial, true), axes);
    else
      for (int64_t t = 0; t < window.n; ++t) {
        Value part = cloneFor(op, t, partial, true);
        sum = sum ? add(sum, part) : part;
      }
    return partial == type ? sum : Value(CastOp::create(builder, op->getLoc(), type, sum));
  }

  /// A reduce_scatter round the ring: the sum for each rank travels towards it, every rank on the way adds its product,
  /// and the rank itself adds the last one.
  Value ringOf(ReduceScatterOp scatter) {
    Value sum;
    for (int64_t j = 1, n = decisions.blocked(scatter.getX())->window.n; j <= n; ++j) {
      Value arriving = sum ? permute(sum, scatter.getAxes(), sum.getLoc()) : Value();
      Value addend = makeBlock(scatter.getX(), j % n, false);
      sum = arriving ? add(arriving, addend) : addend;
    }
    return sum;
  }

  /// A reduce_scatter by exchanges: step t sends one product to the rank that it is for, while the next one is
  /// computed.
  Value exchangedSum(ReduceScatterOp scatter, const Window &window) {
    Value sum, arriving;
    for (int64_t t = 0; t < window.n; ++t) {
      Value addend = makeBlock(scatter.getX(), t, false);
      Value next = permute(addend, scatter.getAxes(), addend.getLoc(), t, window.other(scatter.getAxes()));
      if (arriving)
        sum = sum ? add(sum, arriving) : arriving;
      arriving = next;
    }
    return add(sum, arriving);
  }

  Block &block;
  const Decisions &decisions;
  OpBuilder builder;
  llvm::DenseMap<Value, SmallVector<Value>> blocks; ///< by t; null: not made yet
  llvm::DenseMap<Value, SmallVector<Value>> wholes; ///< by the number of blocks in place
  llvm::DenseMap<std::pair<std::pair<Value, std::pair<Attribute, Attribute>>, std::pair<int64_t, int64_t>>, Value>
      slices;                                             ///< axes, with; dim, t
  llvm::DenseMap<std::pair<ArrayAttr, Value>, bool> same; ///< isSameOver
  SmallVector<Value> pending;                             ///< blocked values of this task
  llvm::SetVector<Operation *> broadcasts;                ///< of which block-sized clones were made
};

} // namespace

void pc::windowProducts(Block &block, MeshAttr mesh, ArrayRef<std::string> axes, SmallVectorImpl<ArrayAttr> &windowed,
                        llvm::function_ref<void(StayingMove)> stays) {
  Decisions decisions(block, mesh, axes);
  decisions.forStaying(stays);
  Writer(block, decisions).run(windowed);
}
