//===- WindowProducts.cpp - Collective matmul -------------------------------------------------===//
// Replaces gathers and reduce_scatters by steps with partial products. Blocks.h decides which values exist as blocks,
// and which ops are steps that work on them. `Writer` computes each block once, at its first reader, in the order of
// the ring. If an op needs a whole value, `pc.insert` assembles it. Afterwards, no blocked gather and no scatter with a
// window is left. Reference: S. Wang et al., "Overlap communication with dependent computation via decomposition in
// large deep learning models", ASPLOS 2023.
//===-----------------------------------------------------------------------------===//
#include "Blocks.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace pc;

namespace {

/// The type of a block along `dim`.
RankedTensorType blockType(Type whole, int64_t dim, int64_t n) {
  auto tensor = cast<RankedTensorType>(whole);
  SmallVector<int64_t> shape(tensor.getShape());
  shape[dim] /= n;
  return cast<RankedTensorType>(tensor.clone(shape));
}

/// Writes the steps.
class Writer {
public:
  Writer(Block &block, const BlockDecisions &decisions)
      : block(block), decisions(decisions), builder(block.getParentOp()->getContext()) {}

  /// For each op that works block by block, inserts its steps in front of it. Erases the replaced ops at the end.
  void run(SmallVectorImpl<ArrayAttr> &windowed) {
    SmallVector<Operation *> replaced;
    for (Operation *op : llvm::to_vector(llvm::make_pointer_range(block))) {
      builder.setInsertionPoint(op);
      if (isa<TaskOp, SeedOp>(op)) {
        slices.clear(); // the next pass or task computes its slices again, so that they need no memory in between
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
        if (isa<CarryOp>(op)) // not at its first reader, because it gives memory free
          for (int64_t t = 0, n = decisions.blocked(op->getResult(0))->window.n; t < n; ++t)
            makeBlock(op->getResult(0), t, true);
        pending.push_back(op->getResult(0));
      } else if (decisions.step(op)) {
        op->getResult(0).replaceAllUsesWith(sumOf(op));
      } else {
        // This op reads whole values, so they are assembled before it.
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
  /// At the end of a pipeline task, computes the blocks that belong to this task and have no reader yet.
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

  /// Block `t` of `value`, which is computed if it does not exist yet. With `inOrder`, blocks 0 to t - 1 are computed
  /// first, because this is the order in which they arrive from the ring. A reduce_scatter needs its addends in another
  /// order and passes false.
  Value makeBlock(Value value, int64_t t, bool inOrder) {
    Operation *op = value.getDefiningOp();
    if (auto gather = dyn_cast<AllGatherOp>(op)) {
      const Window &window = decisions.blocked(value)->window;
      SmallVector<Value> &made = blocks[value];
      made.resize(window.n);
      if (window.with && !made[t]) // sent directly by its owner; pc-schedule starts this one product ahead
        made[t] = permute(gather.getX(), gather.getAxes(), gather.getLoc(), t, window.other(gather.getAxes()));
      if (window.with)
        return made[t];
      // The permute of block t + 1 comes before the work on block t, so that both can overlap.
      made[0] = gather.getX();
      for (int64_t u = 1; u < std::min(window.n, t + 2); ++u)
        if (!made[u])
          made[u] = permute(made[u - 1], gather.getAxes(), gather.getLoc());
      return made[t];
    }
    if (inOrder)
      for (int64_t u = 0; u < t; ++u)
        makeBlock(value, u, false);
    // Looked up again after each call: the calls above may add entries, which moves the map's values.
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

  /// Block `t` of an operand: a block of a blocked value, or a slice of a whole one.
  Value blockOf(Value operand, const BlockStep &step, unsigned number, int64_t t, bool inOrder) {
    if (const Blocked *blocked = decisions.blocked(operand); blocked && step.reads(number, *blocked))
      return makeBlock(operand, t, inOrder);
    int64_t dim = step.row.operands[number].dim();
    RankedTensorType type = blockType(operand.getType(), dim, step.window.n);
    Value whole = wholeOf(operand);
    // All blocks of a broadcast along `dim` are equal, so it is broadcast to the size of a block instead of being
    // sliced.
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

  /// The whole value. If it is blocked, it is assembled from its blocks.
  Value wholeOf(Value value) {
    const Blocked *blocked = decisions.blocked(value);
    if (!blocked)
      return value;
    for (int64_t t = 0; t < blocked->window.n; ++t)
      insert(value, t);
    return wholes[value].back();
  }

  /// Computes `wholes[value][t]`, the whole value with blocks 0 to `t` inserted.
  void insert(Value value, int64_t t) {
    if (static_cast<int64_t>(wholes[value].size()) > t)
      return;
    const Blocked &blocked = *decisions.blocked(value);
    Value block = makeBlock(value, t, true);
    SmallVector<Value> &made = wholes[value];
    made.push_back(InsertOp::create(builder, value.getLoc(), value.getType(), block, t ? made[t - 1] : Value(),
                                    blocked.dim, blocked.window.axes, t, blocked.window.with));
  }

  /// Lets `op`, which is not a step, read whole values.
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

  /// Returns true if all ranks along `axes` certainly have the same `value`, judging by this block.
  bool isSameOver(ArrayAttr axes, Value value) {
    auto [known, isNew] = same.try_emplace({axes, value}, false);
    if (!isNew)
      return known->second;
    Operation *op = value.getDefiningOp();
    bool result = false;
    if (auto gather = dyn_cast_if_present<AllGatherOp>(op))
      result = gather.getAxes() == axes;
    else if (op && op->getNumOperands() &&
             (op->hasTrait<Pointwise>() || op->hasTrait<Rowwise>() || isa<EinsumOp, CarryOp>(op)))
      result = llvm::all_of(op->getOperands(), [&](Value operand) { return isSameOver(axes, operand); });
    return same[{axes, value}] = result;
  }

  /// The sum of the results of `op` on each of its blocks. Ranks process their blocks in different orders, and the bits
  /// of a sum of more than two addends depend on the order. A sum that must be equal on all ranks (the gradient of a
  /// replicated bias) is therefore computed by a move.
  Value sumOf(Operation *op) {
    Type type = op->getResult(0).getType(), partial = inF32(type);
    const Window &window = decisions.step(op)->window;
    Value sum;
    auto isSame = [&](ArrayAttr axes) { return axes && isSameOver(axes, op->getResult(0)); };
    if (ArrayAttr axes = isSame(window.axes) ? window.axes : window.with; window.n > 2 && isSame(axes))
      sum = AllReduceOp::create(builder, op->getLoc(), partial, PartialKind::Sum, cloneFor(op, 0, partial, true), axes,
                                WireAttr());
    else
      for (int64_t t = 0; t < window.n; ++t) {
        Value part = cloneFor(op, t, partial, true);
        sum = sum ? add(sum, part) : part;
      }
    return partial == type ? sum : Value(CastOp::create(builder, op->getLoc(), type, sum));
  }

  /// A reduce_scatter around the ring: the sum for each rank passes from rank to rank towards it. Every rank adds its
  /// product, and the destination adds the last one.
  Value ringOf(ReduceScatterOp scatter) {
    Value sum;
    for (int64_t j = 1, n = decisions.blocked(scatter.getX())->window.n; j <= n; ++j) {
      Value arriving = sum ? permute(sum, scatter.getAxes(), sum.getLoc()) : Value();
      Value addend = makeBlock(scatter.getX(), j % n, false);
      sum = arriving ? add(arriving, addend) : addend;
    }
    return sum;
  }

  /// A reduce_scatter by exchanges: step t sends one product to its destination while the next one is computed.
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
  const BlockDecisions &decisions;
  OpBuilder builder;
  llvm::DenseMap<Value, SmallVector<Value>> blocks; ///< indexed by t; null: not computed yet
  llvm::DenseMap<Value, SmallVector<Value>> wholes; ///< indexed by the last inserted block
  llvm::DenseMap<std::pair<std::pair<Value, std::pair<Attribute, Attribute>>, std::pair<int64_t, int64_t>>, Value>
      slices;                                             ///< axes, with; dim, t
  llvm::DenseMap<std::pair<ArrayAttr, Value>, bool> same; ///< isSameOver
  SmallVector<Value> pending;                             ///< blocked values of this task
  llvm::SetVector<Operation *> broadcasts;                ///< broadcasts that were cloned at the size of a block
};

} // namespace

/// Decides for all blocks before it writes any, because decisions follow values through other functions.
void pc::windowProducts(ModuleOp module, MeshAttr mesh, ArrayRef<std::string> axes,
                        SmallVectorImpl<ArrayAttr> &windowed, llvm::function_ref<void(StayingMove)> stays) {
  Origins origins(module);
  std::vector<std::pair<Block *, BlockDecisions>> all;
  auto decide = [&](Block &block) {
    all.emplace_back(&block, BlockDecisions(block, mesh, axes, origins));
    all.back().second.forStaying(stays);
  };
  for (func::FuncOp function : module.getOps<func::FuncOp>()) {
    if (function.isExternal())
      continue;
    Block &body = function.getBody().front();
    for (auto accumulate : body.getOps<AccumulateOp>())
      decide(accumulate.getBody().front());
    decide(body);
  }
  for (auto &[block, decisions] : all)
    Writer(*block, decisions).run(windowed);
}
