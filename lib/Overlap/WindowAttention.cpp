//===- WindowAttention.cpp - Ring attention --------------------------------------------------===//
// Replaces gathers of keys and values by steps around a ring. Each rank computes attention to its current block while
// the next block arrives from its neighbour. References: H. Liu et al., "Ring attention with blockwise transformers",
// 2023; for orders that balance causal attention, W. Brandon et al., "Striped attention", 2023, and its followers.
//===-----------------------------------------------------------------------------===//
#include "Windows.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace pc;

Type pc::inF32(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return tensor.getElementType().isBF16()
             ? RankedTensorType::get(tensor.getShape(), Float32Type::get(type.getContext()), tensor.getEncoding())
             : type;
}

namespace {

/// Rewrites the attentions of one function whose keys and values are gathered. `coordinates` and `counted` are small
/// values that all attentions share (a rank's coordinate in the ring, the number of keys that a query sees in a block).
class Windows {
public:
  Windows(func::FuncOp function, MeshAttr mesh) : function(function), mesh(mesh), builder(function.getContext()) {}

  /// The list is made first, because rewriting erases ops.
  LogicalResult run() {
    SmallVector<Operation *> attentions;
    function.walk([&](Operation *op) {
      if (isa<AttentionOp, AttentionGradOp>(op))
        attentions.push_back(op);
    });
    for (Operation *op : attentions)
      if (failed(isa<AttentionOp>(op) ? rewrite(cast<AttentionOp>(op)) : rewrite(cast<AttentionGradOp>(op))))
        return failure();
    return success();
  }

private:
  /// Returns the gather along the keys that defines `value`; null if another op defines it.
  static AllGatherOp gatherOf(Value value) {
    auto gather = value.getDefiningOp<AllGatherOp>();
    return gather && gather.getDim() == 1 ? gather : AllGatherOp();
  }

  /// Returns the axes of the ring, which are the axes over which keys and values are gathered. Fails unless both are
  /// gathered over the same axes, and these have as many ranks as the zigzag order.
  template <typename Op> FailureOr<ArrayAttr> ringOf(Op op) {
    AllGatherOp keys = gatherOf(op.getK()), values = gatherOf(op.getV());
    int64_t n = keys ? mesh.size(keys.getMoveAxes()) : 0;
    if (!keys || !values || keys.getAxes() != values.getAxes() || n != zigzagRanks(op))
      return op.emitOpError() << "has only a part of the queries, so its keys and values must be gathered over all "
                              << zigzagRanks(op) << " ranks of the zigzag order";
    return keys.getAxes();
  }

  /// Counts, for each query of this rank, the keys that it sees in the block of the rank `shift` before this one.
  Value keyCounts(ArrayAttr axes, int64_t queries, int64_t n, int64_t shift) {
    Value &counts = counted[{axes, {queries, shift}}];
    if (counts)
      return counts;
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&function.getBody().front());
    Type i32 = builder.getI32Type();
    Value &me = coordinates[axes];
    if (!me)
      me = BlockOffsetOp::create(builder, function.getLoc(), RankedTensorType::get({}, i32), axes,
                                 builder.getI64IntegerAttr(1));
    builder.setInsertionPointAfterValue(me);
    counts = KeyCountsOp::create(builder, function.getLoc(), RankedTensorType::get({queries}, i32), me, n, shift);
    return counts;
  }

  /// Returns the dropout of a step, if `op` has dropout. The positions of the step's keys are `shift` blocks before the
  /// positions of its queries.
  template <typename Op> std::pair<DropAttr, SmallVector<Value>> stepDrop(Op op, int64_t shift) {
    SmallVector<Value> offsets(op.getOffsets());
    DropAttr drop = op.getDropAttr();
    if (!drop)
      return {};
    SmallVector<int64_t> split(drop.getSplit());
    constexpr int64_t queries = 3, keys = 4; // dims of the weights [b, k, g, s, t]
    offsets.push_back(offsets[llvm::find(split, queries) - split.begin()]);
    split.push_back(keys);
    return {DropAttr::get(op.getContext(), drop.getThreshold(), drop.getGlobal(), split, shift), offsets};
  }

  Value permute(Value x, ArrayAttr axes) {
    return PermuteOp::create(builder, x.getLoc(), x.getType(), x, axes, 1, nullptr);
  }
  Value add(Value a, Value b) { return AddOp::create(builder, a.getLoc(), a.getType(), a, b); }
  Value rounded(Value x, Type type) {
    return x.getType() == type ? x : Value(CastOp::create(builder, x.getLoc(), type, x));
  }
  static void eraseIfUnused(Operation *op) {
    if (op->use_empty())
      op->erase();
  }

  /// Replaces an attention over gathered keys by one attention per block of keys, merged by their log-sum-exps.
  LogicalResult rewrite(AttentionOp op) {
    if (!op.getSees())
      return success();
    FailureOr<ArrayAttr> axes = ringOf(op);
    if (failed(axes))
      return failure();
    int64_t n = zigzagRanks(op), queries = cast<RankedTensorType>(op.getQ().getType()).getDimSize(1);
    AllGatherOp keys = gatherOf(op.getK()), values = gatherOf(op.getV());
    Value k = keys.getX(), v = values.getX(), o, lse;
    Type partial = inF32(op.getO().getType());
    builder.setInsertionPoint(op);
    for (int64_t t = 0; t < n; ++t) {
      // The permutes of the next block come first, so that they are in flight during this block's attention.
      Value nextK = t + 1 < n ? permute(k, *axes) : Value(), nextV = t + 1 < n ? permute(v, *axes) : Value();
      Value sees = op.getCausal() ? keyCounts(*axes, queries, n, t) : Value();
      auto [drop, offsets] = stepDrop(op, t);
      auto part =
          AttentionOp::create(builder, op.getLoc(), partial, op.getLse().getType(), op.getQ(), k, v,
                              /*bias=*/Value(), /*sinks=*/Value(), /*starts=*/Value(), op.getRandom(), sees, offsets,
                              op.getScaleAttr(), op.getCausalAttr(), /*window=*/nullptr, op.getSoftcapAttr(), drop);
      if (t == 0) {
        o = part.getO(), lse = part.getLse();
      } else {
        auto merged =
            MergeAttentionOp::create(builder, op.getLoc(), partial, lse.getType(), o, lse, part.getO(), part.getLse());
        o = merged.getO(), lse = merged.getLse();
      }
      k = nextK, v = nextV;
    }
    op.getO().replaceAllUsesWith(rounded(o, op.getO().getType()));
    op.getLse().replaceAllUsesWith(lse);
    op.erase();
    eraseIfUnused(keys);
    if (values != keys)
      eraseIfUnused(values);
    return success();
  }

  /// Returns the reduce_scatter over the ring that is the only reader of a gradient of gathered keys or values; null if
  /// there is none.
  static ReduceScatterOp scatterOf(Value gradient, ArrayAttr axes) {
    auto scatter = gradient.hasOneUse() ? dyn_cast<ReduceScatterOp>(*gradient.user_begin()) : ReduceScatterOp();
    return scatter && scatter.getDim() == 1 && scatter.getAxes() == axes ? scatter : ReduceScatterOp();
  }

  /// Rewrites the backward pass, which goes over the same blocks. Gradients of keys and values are sent around the ring
  /// together with the keys and values, instead of in a reduce_scatter.
  LogicalResult rewrite(AttentionGradOp op) {
    if (!op.getSees())
      return success();
    FailureOr<ArrayAttr> axes = ringOf(op);
    if (failed(axes))
      return failure();
    ReduceScatterOp keySum = scatterOf(op.getDk(), *axes), valueSum = scatterOf(op.getDv(), *axes);
    // If keys or values are computed from frozen parameters, nothing reads their gradient.
    bool needsK = !op.getDk().use_empty(), needsV = !op.getDv().use_empty();
    if ((needsK && !keySum) || (needsV && !valueSum))
      return op.emitOpError()
             << "has gradients of keys or values that are not reduced and scattered over the ranks of the ring";
    int64_t n = zigzagRanks(op), queries = cast<RankedTensorType>(op.getQ().getType()).getDimSize(1);
    AllGatherOp keys = gatherOf(op.getK()), values = gatherOf(op.getV());
    Value k = keys.getX(), v = values.getX(), ownK, ownV, dq, dk, dv;
    Type partial = inF32(op.getDq().getType());
    builder.setInsertionPoint(op);
    for (int64_t t = 0; t < n; ++t) {
      Value nextK = t + 1 < n ? permute(k, *axes) : Value(), nextV = t + 1 < n ? permute(v, *axes) : Value();
      // The gradient of a block is sent with it: the sum of the addends so far arrives from the previous rank.
      Value sumK = t > 1 && needsK ? permute(dk, *axes) : Value(),
            sumV = t > 1 && needsV ? permute(dv, *axes) : Value();
      Value sees = op.getCausal() ? keyCounts(*axes, queries, n, t) : Value();
      auto [drop, offsets] = stepDrop(op, t);
      auto part = AttentionGradOp::create(builder, op.getLoc(), partial, k.getType(), v.getType(),
                                          /*dbias=*/Type(), op.getQ(), k, v, op.getO(), op.getLse(), op.getDout(),
                                          /*bias=*/Value(), /*starts=*/Value(), op.getRandom(), sees, offsets,
                                          op.getScaleAttr(), op.getCausalAttr(),
                                          /*window=*/nullptr, op.getSoftcapAttr(), drop);
      dq = t == 0 ? part.getDq() : add(dq, part.getDq());
      if (t == 0)
        ownK = part.getDk(), ownV = part.getDv();
      else
        dk = sumK ? add(sumK, part.getDk()) : part.getDk(), dv = sumV ? add(sumV, part.getDv()) : part.getDv();
      k = nextK, v = nextV;
    }
    // The last permute sends each block's sum to the rank that owns the block, which adds its own part.
    auto bringHome = [&](ReduceScatterOp sum, Value travelled, Value own) {
      sum.getResult().replaceAllUsesWith(travelled ? add(permute(travelled, *axes), own) : own);
      sum.erase();
    };
    if (needsK)
      bringHome(keySum, dk, ownK);
    if (needsV)
      bringHome(valueSum, dv, ownV);
    op.getDq().replaceAllUsesWith(rounded(dq, op.getDq().getType()));
    op.erase();
    eraseIfUnused(keys);
    if (values != keys)
      eraseIfUnused(values);
    return success();
  }

  func::FuncOp function;
  MeshAttr mesh;
  OpBuilder builder;
  llvm::DenseMap<ArrayAttr, Value> coordinates;
  llvm::DenseMap<std::pair<ArrayAttr, std::pair<int64_t, int64_t>>, Value> counted; ///< axes, queries, shift
};

} // namespace

LogicalResult pc::windowAttention(func::FuncOp function, MeshAttr mesh) { return Windows(function, mesh).run(); }
