//===- WindowProducts.cpp - Gathers and reduce_scatters become steps with partial products ----===//
// A gathered value exists as blocks, as they come round the ring, and so does what is computed from it block by block,
// up to what needs all of it: a sum over the blocks, a reduce_scatter, which is a ring of its own, or an op that is not
// linear in blocks. First it is decided which values are blocked; then blocks are made where their first reader stands.
// Reference: S. Wang et al., "Overlap communication with dependent computation via decomposition in large deep learning
// models", ASPLOS 2023.
//===-----------------------------------------------------------------------------===//
#include "Windows.h"
#include "pc/Cost/Cost.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace pc;

namespace {

/// A value that exists as n blocks along `dim`. Block t is, on coordinate i of `axes`, that of coordinate (i - t) mod
/// n.
struct Blocked {
  ArrayAttr axes;
  int64_t dim = 0, n = 0;
  bool operator==(const Blocked &other) const { return axes == other.axes && dim == other.dim; }
};

/// How an op is computed block by block: which operands and results are blocked, and along which dim.
struct Step {
  ArrayAttr axes;
  int64_t n;
  Row row;

  bool reads(unsigned operand, const Blocked &blocked) const {
    return axes == blocked.axes && row.operands[operand] == AxisState::split(blocked.dim);
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
    while (!followGathers())
      ;
    for (auto scatter : block.getOps<ReduceScatterOp>())
      if (isWindow(scatter) && scatter.getReduction() == PartialKind::Sum)
        followScatter(scatter);
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
  bool isRing(ReduceScatterOp scatter) const { return rings.contains(scatter); }

private:
  bool isWindow(MoveOpInterface move) const {
    return mesh.size(move.getMoveAxes()) > 1 && llvm::all_of(move.getMoveAxes(), [&](StringAttr axis) {
             return llvm::any_of(axes, [&](const std::string &name) { return isAxisOf(axis, name); });
           });
  }

  /// From the gathers on. False if a gather turned out to be needed whole: it stays one, and all is decided again.
  bool followGathers() {
    values.clear();
    steps.clear();
    size_t before = whole.size();
    for (Operation &op : block) {
      if (auto gather = dyn_cast<AllGatherOp>(op); gather && isWindow(gather) && !whole.contains(gather)) {
        values[gather.getResult()] = {gather.getAxes(), int64_t(gather.getDim()), mesh.size(gather.getMoveAxes())};
        if (llvm::none_of(gather->getUsers(), isProduct))
          whole.insert(gather);
        continue;
      }
      decide(&op);
      const Step *step = this->step(&op);
      op.walk([&](Operation *inner) { // an op with a region reads what the ops in it read
        for (OpOperand &use : inner->getOpOperands())
          if (const Blocked *operand = blocked(use.get()))
            if (auto gather = use.get().getDefiningOp<AllGatherOp>();
                gather && !(inner == &op && step && step->reads(use.getOperandNumber(), *operand)))
              whole.insert(gather);
      });
    }
    return whole.size() == before;
  }

  /// The step of an op that reads blocks, if it can work on them.
  void decide(Operation *op) {
    auto factored = dyn_cast<FactorOpInterface>(op);
    if (!factored || op->getNumResults() != 1)
      return;
    for (auto [i, operand] : llvm::enumerate(op->getOperands()))
      if (const Blocked *from = blocked(operand))
        for (const Row &row : legalRows(factored.getFactorRule())) {
          if (row.operands[i] != AxisState::split(from->dim) || !takesBlocks(op, row))
            continue;
          steps[op] = {from->axes, from->n, row};
          if (row.results[0].isSplit())
            values[op->getResult(0)] = {from->axes, row.results[0].dim(), from->n};
          return;
        }
  }

  /// From a scattered value back to the products that it is the sum of.
  void followScatter(ReduceScatterOp scatter) {
    Blocked wanted{scatter.getAxes(), int64_t(scatter.getDim()), mesh.size(scatter.getMoveAxes())};
    bool found = false;
    SmallVector<std::pair<Operation *, Step>> made;
    if (!follow(scatter.getX(), wanted, made, found) || !found)
      return;
    rings.insert(scatter);
    for (auto &[op, step] : made) {
      values[op->getResult(0)] = {wanted.axes, step.row.results[0].dim(), wanted.n};
      steps[op] = step;
    }
  }

  bool follow(Value value, const Blocked &wanted, SmallVectorImpl<std::pair<Operation *, Step>> &made, bool &found) {
    Operation *op = value.getDefiningOp();
    if (const Blocked *known = blocked(value)) {
      found |= isMadeByProduct(value);
      return *known == wanted;
    }
    auto factored = dyn_cast_or_null<FactorOpInterface>(op);
    if (!factored || op->getBlock() != &block || op->getNumResults() != 1 || !value.hasOneUse() || step(op))
      return false;
    for (const Row &row : legalRows(factored.getFactorRule())) {
      if (row.results[0] != AxisState::split(wanted.dim) || !takesBlocks(op, row))
        continue;
      Step step{wanted.axes, wanted.n, row};
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
          (void)follow(operand, {wanted.axes, row.operands[i].dim(), wanted.n}, made, found);
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
  llvm::DenseMap<Value, Blocked> values;
  llvm::DenseMap<Operation *, Step> steps;
  llvm::DenseSet<Operation *> rings;
  llvm::DenseSet<Operation *> whole; ///< gathers that stay
};

//===---------------------------------------------------------------------------===//
// The steps
//===---------------------------------------------------------------------------===//

class Writer {
public:
  Writer(Block &block, const Decisions &decisions)
      : block(block), decisions(decisions), builder(block.getParentOp()->getContext()) {}

  /// Returns the axes of the moves that are steps now.
  SmallVector<ArrayAttr> run() {
    SmallVector<Operation *> replaced;
    SmallVector<ArrayAttr> windowed;
    for (Operation *op : llvm::to_vector(llvm::make_pointer_range(block))) {
      builder.setInsertionPoint(op);
      if (isa<TaskOp, SeedOp>(op)) {
        slices.clear(); // made again rather than kept
        if (isa<TaskOp>(op))
          finish();
        continue;
      }
      auto scatter = dyn_cast<ReduceScatterOp>(op);
      if (scatter && decisions.isRing(scatter)) {
        windowed.push_back(scatter.getAxes());
        scatter.getResult().replaceAllUsesWith(ringOf(scatter));
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
    return windowed;
  }

private:
  /// A task of a pipeline ends: what stands in it is made in it.
  void finish() {
    for (Value value : pending)
      for (int64_t t = 0, n = decisions.blocked(value)->n; t < n; ++t)
        makeBlock(value, t, true);
    pending.clear();
  }

  Value permute(Value x, ArrayAttr axes) { return PermuteOp::create(builder, x.getLoc(), x.getType(), x, axes); }
  Value add(Value a, Value b) { return AddOp::create(builder, a.getLoc(), a.getType(), a, b); }

  /// Block `t`. The order in which blocks come round the ring is the order in which they can be worked on; a
  /// reduce_scatter wants its addends in another one (`inOrder` false), but what these are made of can be there before.
  Value makeBlock(Value value, int64_t t, bool inOrder) {
    Operation *op = value.getDefiningOp();
    if (auto gather = dyn_cast<AllGatherOp>(op)) {
      // The next block is on its way while this one is worked on.
      int64_t n = decisions.blocked(value)->n;
      SmallVector<Value> &made = blocks[value];
      made.resize(n);
      made[0] = gather.getX();
      for (int64_t u = 1; u < std::min(n, t + 2); ++u)
        if (!made[u])
          made[u] = PermuteOp::create(builder, gather.getLoc(), made[u - 1].getType(), made[u - 1], gather.getAxes());
      return made[t];
    }
    if (inOrder)
      for (int64_t u = 0; u < t; ++u)
        makeBlock(value, u, false);
    auto known = [&]() -> Value & {
      SmallVector<Value> &made = blocks[value];
      made.resize(decisions.blocked(value)->n);
      return made[t];
    };
    if (Value there = known())
      return there;
    const Blocked &blocked = *decisions.blocked(value);
    Value made = cloneFor(op, t, blockType(value.getType(), blocked.dim, blocked.n), inOrder);
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
    RankedTensorType type = blockType(operand.getType(), dim, step.n);
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
    Value &slice = slices[{{whole, step.axes}, {dim, t}}];
    if (!slice)
      slice = SliceOp::create(builder, whole.getLoc(), type, whole, dim, step.axes, t);
    return slice;
  }

  /// The whole value, which is put together from its blocks where it is blocked.
  Value wholeOf(Value value) {
    const Blocked *blocked = decisions.blocked(value);
    if (!blocked)
      return value;
    for (int64_t t = 0; t < blocked->n; ++t)
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
                                    blocked.dim, blocked.axes, t));
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
      most = std::max(most, decisions.blocked(use->get())->n);
    for (int64_t t = 0; t < most; ++t) // all work on a block that has arrived before the next one is waited for
      for (OpOperand *use : uses)
        if (t < decisions.blocked(use->get())->n)
          insert(use->get(), t);
    for (OpOperand *use : uses)
      use->set(wholes[use->get()].back());
  }

  /// The sum over the blocks.
  Value sumOf(Operation *op) {
    Type type = op->getResult(0).getType(), partial = inF32(type);
    Value sum;
    for (int64_t t = 0, n = decisions.step(op)->n; t < n; ++t) {
      Value part = cloneFor(op, t, partial, true);
      sum = sum ? add(sum, part) : part;
    }
    return partial == type ? sum : Value(CastOp::create(builder, op->getLoc(), type, sum));
  }

  /// The sum of a block travels to the rank that it is for, which adds the last addend.
  Value ringOf(ReduceScatterOp scatter) {
    Value sum;
    for (int64_t j = 1, n = decisions.blocked(scatter.getX())->n; j <= n; ++j) {
      Value arriving = sum ? permute(sum, scatter.getAxes()) : Value();
      Value addend = makeBlock(scatter.getX(), j % n, false);
      sum = arriving ? add(arriving, addend) : addend;
    }
    return sum;
  }

  Block &block;
  const Decisions &decisions;
  OpBuilder builder;
  llvm::DenseMap<Value, SmallVector<Value>> blocks; ///< by t; null: not made yet
  llvm::DenseMap<Value, SmallVector<Value>> wholes; ///< by the number of blocks in place
  llvm::DenseMap<std::pair<std::pair<Value, Attribute>, std::pair<int64_t, int64_t>>, Value> slices; ///< axes; dim, t
  SmallVector<Value> pending;              ///< blocked values of this task
  llvm::SetVector<Operation *> broadcasts; ///< of which there are blocks
};

} // namespace

SmallVector<ArrayAttr> pc::windowProducts(Block &block, MeshAttr mesh, ArrayRef<std::string> axes) {
  Decisions decisions(block, mesh, axes);
  return Writer(block, decisions).run();
}
