//===- ChunkLoss.cpp - Logits, loss and their gradients in chunks of tokens --------------------===//
// Input: a step program. Result: all ops from the head to the gradients of its operands are repeated for each chunk of
// the tokens, one chunk after the other, so only the logits of one chunk exist at a time. Values with one entry per
// token are stacked, and sums over tokens are added. This is possible because the gradient of a token's loss does not
// depend on the losses of other tokens: the weights of the tokens are inputs.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_CHUNKLOSS
#include "pc/Autodiff/Passes.h"

#include "pc/IR/DimClasses.h"
#include "pc/IR/MoveRows.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace pc;

namespace {

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

RankedTensorType withDims(Value like, ArrayRef<int64_t> shape) {
  return RankedTensorType::get(shape, typeOf(like).getElementType());
}

/// "x0 <middle> x2": the dims of `value` for a spec, with another text for dim `dim`.
std::string specOf(Value value, int64_t dim, StringRef middle) {
  std::string text;
  for (int64_t d = 0, e = typeOf(value).getRank(); d < e; ++d)
    text += (d ? " " : "") + (d == dim ? middle.str() : "x" + std::to_string(d));
  return text;
}

/// Writes chunks of values along a dim: chunk i of n has the entries i, n + i, 2n + i, ... So ranks that split the dim
/// have a part of each chunk.
struct ChunkBuilder {
  OpBuilder &builder;
  int64_t chunks;

  /// `value` with two dims instead of `dim`: the index within a chunk, and the chunk.
  Value divide(Value value, int64_t dim) {
    SmallVector<int64_t> shape(typeOf(value).getShape());
    shape[dim] /= chunks;
    shape.insert(shape.begin() + dim + 1, chunks);
    return ReshapeOp::create(builder, value.getLoc(), withDims(value, shape),
                             specOf(value, dim, "(s n)") + " -> " + specOf(value, dim, "s n"), value);
  }

  /// One chunk of a divided value.
  Value chunkOf(Value divided, int64_t dim, int64_t chunk) {
    SmallVector<int64_t> shape(typeOf(divided).getShape());
    shape[dim + 1] = 1;
    Value entry = ColumnsOp::create(builder, divided.getLoc(), withDims(divided, shape), divided,
                                    builder.getI64IntegerAttr(dim + 1), builder.getI64IntegerAttr(chunk), IntegerAttr(),
                                    IntegerAttr());
    shape.erase(shape.begin() + dim + 1);
    return merge(entry, dim, shape);
  }

  /// The whole value, from all of its chunks.
  Value assemble(ArrayRef<Value> parts, int64_t dim) {
    Location loc = parts[0].getLoc();
    SmallVector<int64_t> shape(typeOf(parts[0]).getShape()), stacked(shape), whole(shape);
    stacked.insert(stacked.begin(), chunks);
    Value stack = StackOp::create(builder, loc, withDims(parts[0], stacked), parts);
    shape.insert(shape.begin() + dim + 1, chunks);
    Value ordered =
        EinsumOp::create(builder, loc, withDims(stack, shape),
                         "n " + specOf(parts[0], dim, "s") + " -> " + specOf(parts[0], dim, "s n"), ValueRange{stack});
    whole[dim] *= chunks;
    return merge(ordered, dim, whole);
  }

private:
  /// `value` with dims `dim` and `dim` + 1 as one.
  Value merge(Value value, int64_t dim, ArrayRef<int64_t> shape) {
    std::string from, to;
    for (int64_t d = 0, e = typeOf(value).getRank(); d < e; ++d) {
      std::string name = d == dim ? "s" : d == dim + 1 ? "n" : "x" + std::to_string(d);
      from += (d ? " " : "") + name;
      to += (d ? " " : "") + std::string(d == dim ? "(" : "") + name + (d == dim + 1 ? ")" : "");
    }
    return ReshapeOp::create(builder, value.getLoc(), withDims(value, shape), from + " -> " + to, value);
  }
};

/// Rewrites the body of one accumulation.
class LossChunker {
public:
  LossChunker(Block &body, int64_t chunks, int64_t ranks)
      : body(body), chunks(chunks), ranks(ranks), classes(body.getParentOp()) {}

  /// All checks come before the first change.
  LogicalResult run() {
    if (failed(findLoss()))
      return failure();
    findRegion();
    for (Operation *op : region)
      if (failed(check(op)))
        return failure();
    for (OutputOp output : outputs)
      output.erase();
    hoistOperands();
    write();
    return success();
  }

private:
  /// Finds the dims of the logits. Several losses may share both dims.
  LogicalResult findLoss() {
    for (PickOp pick : body.getOps<PickOp>()) {
      Value logits = pick.getLogits();
      int64_t rank = typeOf(logits).getRank();
      if (rank < 2)
        return pick.emitError() << "--loss-chunks: the loss has no dim of tokens";
      unsigned rows = classes.classOf(logits, rank - 2), entries = classes.classOf(logits, rank - 1);
      if (loss && (rows != tokens || entries != vocabulary))
        return pick.emitError() << "--loss-chunks: there are several losses, with other tokens or another vocabulary; "
                                   "leave out --loss-chunks";
      loss = pick, tokens = rows, vocabulary = entries;
      size = typeOf(logits).getDimSize(rank - 2);
    }
    if (!loss)
      return body.getParentOp()->emitError()
             << "--loss-chunks: the model has no cross-entropy; leave out --loss-chunks";
    return checkSize();
  }

  /// Each rank has a part of every chunk, and each chunk of zigzag order has whole groups of `chunks` tokens.
  LogicalResult checkSize() {
    const int64_t pieces = zigzagRanks(loss) ? 2 * zigzagRanks(loss) : ranks,
                  all = size % pieces ? size : size / pieces;
    if (all % chunks == 0)
      return success();
    int64_t below = std::min(chunks, all), above = chunks;
    while (all % below)
      --below;
    while (above < all && all % above)
      ++above;
    bool isMore = all % above == 0;
    InFlightDiagnostic error = loss->emitError();
    error << "--loss-chunks=" << chunks << " does not divide the " << all << " tokens of "
          << (all == size         ? "a sequence"
              : zigzagRanks(loss) ? "each chunk of the sequence in zigzag order"
                                  : "a sequence that a rank has")
          << "; the nearest number" << (isMore ? "s that do are " : " that does is ") << below;
    if (isMore)
      error << " and " << above;
    return error;
  }

  /// The dim of tokens of `value`; -1 if it has none.
  int64_t tokenDim(Value value) { return dimOf(value, tokens); }
  int64_t dimOf(Value value, unsigned id) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    for (int64_t d = 0, e = type ? type.getRank() : 0; d < e; ++d)
      if (classes.classOf(value, d) == id)
        return d;
    return -1;
  }
  bool hasLogits(Operation *op) {
    return llvm::any_of(llvm::concat<Value>(op->getOperands(), op->getResults()),
                        [&](Value value) { return tokenDim(value) >= 0 && dimOf(value, vocabulary) >= 0; });
  }

  /// The ops with values of the size of the logits, all ops between them, and pointwise ops on their results. Outputs
  /// of logits are left out: the logits never exist as a whole.
  void findRegion() {
    llvm::DenseSet<Operation *> after, before, wide;
    for (Operation &op : body.without_terminator()) {
      if (auto output = dyn_cast<OutputOp>(op); output && hasLogits(&op)) {
        outputs.push_back(output);
        continue;
      }
      if (hasLogits(&op))
        wide.insert(&op);
      if (llvm::any_of(op.getOperands(), [&](Value value) {
            return wide.contains(value.getDefiningOp()) || after.contains(value.getDefiningOp());
          }))
        after.insert(&op);
    }
    for (Operation &op : llvm::reverse(body.without_terminator()))
      if (llvm::any_of(op.getUsers(), [&](Operation *user) { return wide.contains(user) || before.contains(user); }))
        before.insert(&op);
    for (Operation &op : body.without_terminator())
      if (wide.contains(&op) || (after.contains(&op) && before.contains(&op)) || continues(&op))
        region.insert(&op);
  }

  /// Whether a pointwise op reads only results of the region, which then need not be assembled.
  bool continues(Operation *op) {
    return op->hasTrait<Pointwise>() && llvm::all_of(op->getOperands(), [&](Value value) {
             return tokenDim(value) >= 0 && region.contains(value.getDefiningOp());
           });
  }

  /// Checks that the op can be computed by chunks: on each token separately, or as a sum of a product over tokens.
  LogicalResult check(Operation *op) {
    auto refuse = [&](const Twine &why) {
      return op->emitError() << "--loss-chunks: '" << op->getName() << "' op " << why
                             << ", so the loss cannot be computed in chunks of tokens; leave out --loss-chunks";
    };
    auto factored = dyn_cast<FactorOpInterface>(op);
    if (!factored)
      return refuse("is between the head and the loss");
    FactorRule rule = factored.getFactorRule();
    // The factor of tokens. It must be the same in all operands and results, and occur once in each of them.
    int factor = -1;
    bool isTwice = false;
    auto visit = [&](Value value, ArrayRef<int> factors) {
      int found = 0;
      for (auto [dim, one] : llvm::enumerate(factors))
        if (classes.classOf(value, dim) == tokens) {
          isTwice |= ++found > 1 || (factor >= 0 && factor != one);
          factor = one;
        }
    };
    for (auto [value, factors] : llvm::zip(op->getOperands(), rule.operands))
      visit(value, factors);
    for (auto [value, factors] : llvm::zip(op->getResults(), rule.results))
      visit(value, factors);
    if (factor < 0)
      return refuse("uses a sum over all tokens");
    auto indexed = dyn_cast<IndexedOpInterface>(op);
    auto drawn = dyn_cast<DrawnOpInterface>(op);
    if (isTwice || rule.factors[factor].whole || isDivided(op, rule, factor) || (drawn && drawn.getDropAttr()) ||
        (indexed && classes.classOf(indexed.getIndexedDim().value, indexed.getIndexedDim().dim) == tokens))
      return refuse("needs all tokens");
    // A result without tokens must be a sum over them. Only an einsum can be computed as the sum of its chunks, and
    // only if no op of the region needs the whole sum.
    for (auto [result, factors] : llvm::zip(op->getResults(), rule.results)) {
      if (llvm::is_contained(factors, factor))
        continue;
      auto sum = dyn_cast<EinsumOp>(op);
      if (!sum || sum.getMask())
        return refuse("combines tokens");
      if (llvm::any_of(result.getUsers(), [&](Operation *user) { return region.contains(user); }))
        return refuse("sums over all tokens before the loss");
    }
    return success();
  }

  /// Moves the ops that the region reads, such as the seed of the backward pass, before it.
  void hoistOperands() {
    llvm::DenseSet<Operation *> needed(region.begin(), region.end());
    for (Operation &op : llvm::reverse(body.without_terminator()))
      if (llvm::any_of(op.getUsers(), [&](Operation *user) { return needed.contains(user); }))
        needed.insert(&op);
    Operation *first = region.front();
    for (Operation &op : llvm::make_early_inc_range(llvm::make_range(first->getIterator(), body.end())))
      if (needed.contains(&op) && !region.contains(&op))
        op.moveBefore(first);
  }

  /// Writes all chunks, and then the values that other ops read.
  void write() {
    OpBuilder builder(region.front());
    ChunkBuilder chunk{builder, chunks};
    // Results with a dim of tokens are assembled from parts; the others are sums of all chunks.
    llvm::MapVector<Value, SmallVector<Value>> parts;
    llvm::MapVector<Value, Value> sums;
    llvm::DenseMap<Value, Value> divided;
    for (int64_t i = 0; i < chunks; ++i) {
      IRMapping values;
      for (Operation *op : region) {
        // An operand from outside of the region is divided once, at its first use in any chunk.
        for (Value operand : op->getOperands()) {
          int64_t dim = tokenDim(operand);
          if (dim < 0 || values.contains(operand))
            continue;
          Value &whole = divided[operand];
          whole = whole ? whole : chunk.divide(operand, dim);
          values.map(operand, chunk.chunkOf(whole, dim, i));
        }
        Operation *copy = builder.clone(*op, values);
        for (auto [result, part] : llvm::zip_equal(op->getResults(), copy->getResults())) {
          if (int64_t dim = tokenDim(result); dim >= 0) {
            SmallVector<int64_t> shape(typeOf(result).getShape());
            shape[dim] /= chunks;
            part.setType(withDims(result, shape));
            parts[result].push_back(part);
          } else {
            addTo(sums[result], part, builder);
          }
        }
      }
    }
    for (auto &[value, all] : parts)
      if (isReadOutside(value))
        replace(value, chunk.assemble(all, tokenDim(value)));
    // Sums are computed in f32, so a result of another type is cast at the end.
    for (auto [value, sum] : sums)
      replace(value, sum.getType() == value.getType()
                         ? sum
                         : CastOp::create(builder, value.getLoc(), value.getType(), sum).getResult());
    for (Operation *op : llvm::reverse(region))
      op->erase();
  }

  /// Adds a chunk's sum over tokens, in f32 also if the sum over all tokens is rounded to bf16.
  static void addTo(Value &sum, Value part, OpBuilder &builder) {
    if (auto type = typeOf(part); type.getElementType().isBF16())
      part.setType(type.clone(builder.getF32Type()));
    sum = sum ? AddOp::create(builder, part.getLoc(), part.getType(), sum, part).getResult() : part;
  }

  bool isReadOutside(Value value) {
    return llvm::any_of(value.getUsers(), [&](Operation *user) { return !region.contains(user); });
  }
  void replace(Value value, Value by) {
    value.replaceUsesWithIf(by, [&](OpOperand &use) { return !region.contains(use.getOwner()); });
  }

  Block &body;
  int64_t chunks, ranks;
  DimClasses classes;
  PickOp loss;
  unsigned tokens = 0, vocabulary = 0; ///< classes of the dims of the logits
  int64_t size = 0;                    ///< the number of tokens of a sequence
  llvm::SetVector<Operation *> region; ///< the ops that are repeated, in order
  SmallVector<OutputOp> outputs;       ///< outputs of logits
};

/// The pass pc-chunk-loss.
struct ChunkLoss : pc::impl::ChunkLossBase<ChunkLoss> {
  using ChunkLossBase::ChunkLossBase;

  void runOnOperation() override {
    if (chunks < 1 || ranks < 1) {
      getOperation().emitError() << "pc-chunk-loss: chunks and ranks must be at least 1, got " << int64_t(chunks)
                                 << " and " << int64_t(ranks);
      return signalPassFailure();
    }
    SmallVector<AccumulateOp> bodies;
    getOperation().walk([&](AccumulateOp op) { bodies.push_back(op); });
    for (AccumulateOp accumulate : bodies)
      if (chunks > 1 && failed(LossChunker(accumulate.getBody().front(), chunks, ranks).run()))
        return signalPassFailure();
  }
};
} // namespace
