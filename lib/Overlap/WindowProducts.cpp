//===- WindowProducts.cpp - Gathers and reduce_scatters become steps with partial products ----===//
// A gathered value exists as blocks, as they come, and so does what is computed from it block by block, up to what
// needs all of it: a sum over the blocks, a reduce_scatter, or an op that is not linear in blocks. First it is decided
// which values are blocked; then blocks are made where their first reader stands. Reference: S. Wang et al., "Overlap
// communication with dependent computation via decomposition in large deep learning models", ASPLOS 2023.
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

/// In which order n blocks come. Round a ring: block t is, on coordinate i of `axes`, that of coordinate (i - t) mod n.
/// Where moves over two axes meet in a product (`with` is the minor one), by exchanges: on coordinates (i, j) block t
/// is that of coordinate k, i + j + k = t mod n, whichever of the two a block comes over or goes to. Rings would need a
/// skew first, as Cannon's algorithm does, which sends more.
struct Window {
  ArrayAttr axes, with;
  int64_t n = 0;
  bool operator==(const Window &other) const { return axes == other.axes && with == other.with; }

  /// Seen from a move over `own`, one of the two: the other one.
  ArrayAttr other(ArrayAttr own) const { return own == axes ? with : axes; }
};

/// A value that exists as blocks along `dim`.
struct Blocked {
  Window window;
  int64_t dim = 0;
};

/// How an op is computed block by block: which operands and results are blocked, and along which dim.
struct Step {
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
  if (!isa<EinsumOp, AddOp, SubOp, ScaleOp, CastOp, ExpOp, LogOp, RecipOp, SqrtOp, ActivationOp, ActivationGradOp,
           ReduceMaxOp, SumExpOp, PickOp, CrossEntropyGradOp, MaskPaddingOp>(op))
    return false;
  auto type = cast<RankedTensorType>(op->getOperand(0).getType());
  // These know the last dim's global index by their offset.
  if (isa<PickOp, CrossEntropyGradOp, MaskPaddingOp>(op) && row.operands[0] == AxisState::split(type.getRank() - 1))
    return false;
  return row.results[0].isSplit() || (isa<EinsumOp>(op) && row.results[0].isSum());
}

bool isProduct(Operation *op) { return isa<EinsumOp>(op) && flopsOf(op) > 0; }

//===---------------------------------------------------------------------------===//
// What is blocked
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
  const Step *step(Operation *op) const {
    auto it = steps.find(op);
    return it == steps.end() ? nullptr : &it->second;
  }
  /// Null where the scatter stays one.
  const Window *window(ReduceScatterOp scatter) const {
    auto it = scatters.find(scatter);
    return it == scatters.end() ? nullptr : &it->second;
  }

  /// Calls `stays` for moves that meet products and stay.
  void forStaying(llvm::function_ref<void(StayingMove)> stays) const {
    for (const auto &[gather, reader] : whole)
      if (reader)
        stays({cast<MoveOpInterface>(gather), reader,
               isProduct(reader) ? "goes by blocks of another operand, over another dim" : "needs all of it"});
    for (auto scatter : block.getOps<ReduceScatterOp>())
      if (Operation *source = scatter.getX().getDefiningOp();
          isWindow(scatter) && !window(scatter) && source && isProduct(source))
        stays({scatter, source, "has its blocks along another dim, or other readers"});
  }

private:
  bool isWindow(MoveOpInterface move) const {
    return mesh.size(move.getMoveAxes()) > 1 && llvm::all_of(move.getMoveAxes(), [&](StringAttr axis) {
             return llvm::any_of(axes, [&](const std::string &name) { return isAxisOf(axis, name); });
           });
  }

  /// False if it has to be decided again, knowing more of which moves have met others.
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

  /// The window of a move by itself, or with those that it has met.
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

  /// From the gathers on. Where one turns out to be needed whole, what followed from its blocks is forgotten.
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
          met.clear(); // perhaps it did not meet anything after all
          at = gather->getIterator();
          forget(at, std::next(op->getIterator()));
        }
      }
    }
  }

  /// A gather that `op` reads otherwise than block by block, and the op in it that does.
  std::pair<AllGatherOp, Operation *> neededWhole(Operation *op) const {
    const Step *step = this->step(op);
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

  /// The step of an op that reads blocks, if it can work on them. True if moves meet here that did not know of each
  /// other.
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
                meets |= again; // the next time they know
              }
          Window window = from->window;
          steps[op] = {window, row};
          if (row.results[0].isSplit())
            values[op->getResult(0)] = {window, row.results[0].dim()};
          return meets;
        }
    return false;
  }

  /// The window in which blocks of both come in one order, where there is one and they do not yet.
  std::optional<Window> common(const Window &a, const Window &b) const {
    if (a == b || a.n != b.n || (a.with && b.with))
      return std::nullopt;
    const Window &one = a.with ? b : a, &two = a.with ? a : b;
    if (two.with)
      return one.axes == two.axes || one.axes == two.with ? std::optional(two) : std::nullopt;
    bool disjoint = llvm::none_of(one.axes, [&](Attribute axis) { return llvm::is_contained(two.axes, axis); });
    return disjoint ? std::optional(pair(one.axes, two.axes, one.n)) : std::nullopt;
  }

  /// The gathers that the blocks of `value` come from are to be windows of this kind, if they have met no other.
  void take(Value value, const Window &window) {
    SmallVector<Value> list = {value};
    llvm::DenseSet<Value> seen;
    while (!list.empty()) {
      Operation *op = list.pop_back_val().getDefiningOp();
      if (auto gather = dyn_cast_or_null<AllGatherOp>(op))
        take(gather, gather.getAxes(), window);
      else if (const Step *step = op ? this->step(op) : nullptr)
        for (auto [i, operand] : llvm::enumerate(op->getOperands()))
          if (const Blocked *from = blocked(operand); from && step->reads(i, *from) && seen.insert(operand).second)
            list.push_back(operand);
    }
  }
  void take(Operation *move, ArrayAttr axes, const Window &window) {
    again |= met.try_emplace(move, window.other(axes)).second;
  }

  /// From a scattered value back to the products that it is the sum of.
  void followScatter(ReduceScatterOp scatter) {
    Blocked wanted{windowOf(scatter, scatter.getAxes()), int64_t(scatter.getDim())};
    bool found = false;
    SmallVector<std::pair<Operation *, Step>> made;
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

  bool follow(Value value, const Blocked &wanted, SmallVectorImpl<std::pair<Operation *, Step>> &made, bool &found) {
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
      Step step{wanted.window, row};
      for (auto [i, operand] : llvm::enumerate(op->getOperands()))
        if (const Blocked *known = blocked(operand);
            known && operand.getDefiningOp<AllGatherOp>() && !step.reads(i, *known))
          return false; // a gather that does not exist whole
      made.push_back({op, step});
      if (isProduct(op)) {
        found = true;
        return true; // its operands are sliced
      }
      for (auto [i, operand] : llvm::enumerate(op->getOperands()))
        if (row.operands[i].isSplit() && !blocked(operand)) // else it is sliced
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
  llvm::DenseMap<Operation *, Step> steps;
  llvm::DenseMap<Operation *, Window> scatters;
  llvm::DenseMap<Operation *, ArrayAttr> met;      ///< of a move: the axes of those that it meets in products
  llvm::MapVector<Operation *, Operation *> whole; ///< gathers that stay, and what needs them so
};

//===---------------------------------------------------------------------------===//
// The steps
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
        slices.clear(); // made again rather than kept
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
  /// A task of a pipeline ends: what stands in it is made in it.
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

  /// Block `t`. The order in which blocks come round the ring is the order in which they can be worked on; a
  /// reduce_scatter wants its addends in another one (`inOrder` false), but what these are made of can be there before.
  Value makeBlock(Value value, int64_t t, bool inOrder) {
    Operation *op = value.getDefiningOp();
    if (auto gather = dyn_cast<AllGatherOp>(op)) {
      const Window &window = decisions.blocked(value)->window;
      SmallVector<Value> &made = blocks[value];
      made.resize(window.n);
      if (window.with && !made[t]) // each from where it lies: pc-schedule starts it one product ahead
        made[t] = permute(gather.getX(), gather.getAxes(), gather.getLoc(), t, window.other(gather.getAxes()));
      if (window.with)
        return made[t];
      // The next block is on its way while this one is worked on.
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

  /// `op` on the blocks `t` of what it reads.
  Value cloneFor(Operation *op, int64_t t, Type type, bool inOrder) {
    const Step &step = *decisions.step(op);
    SmallVector<Value> operands;
    for (auto [i, operand] : llvm::enumerate(op->getOperands()))
      operands.push_back(step.row.operands[i].isSplit() ? blockOf(operand, step, i, t, inOrder || isProduct(op))
                                                        : wholeOf(operand));
    Operation *clone = builder.clone(*op);
    clone->setOperands(operands);
    clone->getResult(0).setType(type);
    return clone->getResult(0);
  }

  Value blockOf(Value operand, const Step &step, unsigned number, int64_t t, bool inOrder) {
    if (const Blocked *blocked = decisions.blocked(operand); blocked && step.reads(number, *blocked))
      return makeBlock(operand, t, inOrder);
    int64_t dim = step.row.operands[number].dim();
    RankedTensorType type = blockType(operand.getType(), dim, step.window.n);
    Value whole = wholeOf(operand);
    // Of a broadcast all blocks are equal.
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

  /// The whole value, which is put together from its blocks where it is blocked.
  Value wholeOf(Value value) {
    const Blocked *blocked = decisions.blocked(value);
    if (!blocked)
      return value;
    for (int64_t t = 0; t < blocked->window.n; ++t)
      insert(value, t);
    return wholes[value].back();
  }

  /// The value with its blocks 0 to `t` in place.
  void insert(Value value, int64_t t) {
    if (static_cast<int64_t>(wholes[value].size()) > t)
      return;
    const Blocked &blocked = *decisions.blocked(value);
    Value block = makeBlock(value, t, true);
    SmallVector<Value> &made = wholes[value];
    made.push_back(InsertOp::create(builder, value.getLoc(), value.getType(), block, t ? made[t - 1] : Value(),
                                    blocked.dim, blocked.window.axes, t, blocked.window.with));
  }

  /// `op`, which works on whole values.
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
    for (int64_t t = 0; t < most; ++t) // all work on a block that has arrived before the next one is waited for
      for (OpOperand *use : uses)
        if (t < decisions.blocked(use->get())->window.n)
          insert(use->get(), t);
    for (OpOperand *use : uses)
      use->set(wholes[use->get()].back());
  }

  /// The sum over the blocks.
  Value sumOf(Operation *op) {
    Type type = op->getResult(0).getType(), partial = inF32(type);
    Value sum;
    for (int64_t t = 0, n = decisions.step(op)->window.n; t < n; ++t) {
      Value part = cloneFor(op, t, partial, true);
      sum = sum ? add(sum, part) : part;
    }
    return partial == type ? sum : Value(CastOp::create(builder, op->getLoc(), type, sum));
  }

  /// The sum of a block travels to the rank that it is for, which adds the last addend.
  Value ringOf(ReduceScatterOp scatter) {
    Value sum;
    for (int64_t j = 1, n = decisions.blocked(scatter.getX())->window.n; j <= n; ++j) {
      Value arriving = sum ? permute(sum, scatter.getAxes(), sum.getLoc()) : Value();
      Value addend = makeBlock(scatter.getX(), j % n, false);
      sum = arriving ? add(arriving, addend) : addend;
    }
    return sum;
  }

  /// Addends go to the ranks that they are for one by one, each while the next one is computed.
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
      slices;                              ///< axes, with; dim, t
  SmallVector<Value> pending;              ///< blocked values of this task
  llvm::SetVector<Operation *> broadcasts; ///< of which there are blocks
};

} // namespace

void pc::windowProducts(Block &block, MeshAttr mesh, ArrayRef<std::string> axes, SmallVectorImpl<ArrayAttr> &windowed,
                        llvm::function_ref<void(StayingMove)> stays) {
  Decisions decisions(block, mesh, axes);
  decisions.forStaying(stays);
  Writer(block, decisions).run(windowed);
}
