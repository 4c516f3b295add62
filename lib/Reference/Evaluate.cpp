//===- Evaluate.cpp - One case per computing op, in the order of PCOps.td ---------------------===//
// Input: an op and the tensors of one rank. Result: its results, in double precision. Simple ops are defined here,
// others in Composites.cpp. The context has the data that depend on global indices (offset, first index of a drawn
// block).
//===-----------------------------------------------------------------------------===//
#include "Evaluators.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Generation.h"
#include "pc/IR/MoveRows.h"
#include "pcrt/description.h"

#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace pc;

/// The product of the operands, summed over the factors that are not in the result (`largest`: the maximum instead of
/// the sum). Counts through all combinations of factors. Each element's addends are added in the order of the factors.
static Tensor contract(const FactorRule &rule, Inputs in, const Shape &shape, bool largest) {
  size_t n = rule.factors.size(), values = in.size() + 1; // the last value is the result
  SmallVector<int64_t> sizes(n, 1), order;
  SmallVector<SmallVector<int64_t>> strides(values, SmallVector<int64_t>(n, 0));
  // A factor that is two dims of one value (a diagonal) moves along both, so its strides add up.
  auto describe = [&](size_t value, ArrayRef<int> dims, ArrayRef<int64_t> valueShape) {
    int64_t stride = 1;
    for (int64_t d = dims.size() - 1; d >= 0; --d) {
      sizes[dims[d]] = valueShape[d];
      strides[value][dims[d]] += stride;
      stride *= valueShape[d];
    }
  };
  for (size_t i = 0; i < in.size(); ++i)
    describe(i, rule.operands[i], in[i]->shape);
  describe(in.size(), rule.results[0], shape);
  for (int f : rule.results[0])
    if (!llvm::is_contained(order, f))
      order.push_back(f);
  const size_t outer = order.size();
  for (size_t f = 0; f < n; ++f)
    if (!llvm::is_contained(order, f))
      order.push_back(f);
  // The last factor is the innermost loop: of the result's last one and the last that is summed, the one along which
  // more values are contiguous.
  auto contiguous = [&](int64_t f) {
    return llvm::count_if(strides, [&](const SmallVector<int64_t> &along) { return along[f] <= 1; });
  };
  if (outer > 0 && contiguous(order[outer - 1]) >= contiguous(order.back()))
    std::rotate(order.begin() + outer - 1, order.begin() + outer, order.end());

  Tensor result(shape, largest ? -INFINITY : 0);
  int64_t length = n ? sizes[order.back()] : 1;
  auto along = [&](size_t value) { return n ? strides[value][order.back()] : 0; };
  SmallVector<int64_t> index(n, 0), at(values, 0);
  for (int64_t count = length ? numElements(sizes) / length : 0; count > 0; --count) {
    double *to = result.data.data() + at[in.size()];
    const int64_t step = along(in.size());
    if (in.size() == 2 && !largest) {
      const double *a = in[0]->data.data() + at[0], *b = in[1]->data.data() + at[1];
      for (int64_t k = 0, stepA = along(0), stepB = along(1); k < length; ++k)
        to[k * step] += a[k * stepA] * b[k * stepB];
    } else {
      for (int64_t k = 0; k < length; ++k) {
        double product = 1;
        for (size_t i = 0; i < in.size(); ++i)
          product *= (*in[i])[at[i] + k * along(i)];
        to[k * step] = largest ? std::max(to[k * step], product) : to[k * step] + product;
      }
    }
    // Counts up like an odometer: a factor that passes its last element returns to its first one and advances the next
    // outer factor.
    for (int64_t o = int64_t(n) - 2; o >= 0; --o) {
      int64_t f = order[o];
      bool wraps = ++index[f] == sizes[f];
      for (size_t i = 0; i < values; ++i)
        at[i] += wraps ? -(sizes[f] - 1) * strides[i][f] : strides[i][f];
      if (!wraps)
        break;
      index[f] = 0;
    }
  }
  return result;
}

/// A tensor of the shape of `like` whose element i is `f(i)`.
template <typename F> static Tensors pointwise(const Tensor &like, F f) {
  Tensor result(like.shape);
  for (int64_t i = 0; i < result.size(); ++i)
    result[i] = f(i);
  return {result};
}

static size_t numberOf(Operation *op, Value operand) {
  return llvm::find(op->getOperands(), operand) - op->operand_begin();
}

/// Returns a function that is true if query s of this rank, in batch row b, sees key t. If `sees` has a count of keys
/// for each query, the count decides; otherwise positions do.
template <typename Op> static Sight sightOf(Op attention, Inputs in, int64_t offset) {
  if (!attention.getCausal())
    return [](int64_t, int64_t, int64_t) { return true; };
  if (Value sees = attention.getSees(); sees && !in[numberOf(attention, sees)]->shape.empty())
    return [counts = in[numberOf(attention, sees)]](int64_t, int64_t s, int64_t t) {
      return static_cast<double>(t) < (*counts)[s];
    };
  std::vector<int64_t> queries, keys;
  for (int64_t s = 0; s < in[0]->shape[1]; ++s)
    queries.push_back(sequencePosition(attention, offset + s));
  for (int64_t t = 0; t < in[1]->shape[1]; ++t)
    keys.push_back(sequencePosition(attention, t));
  auto window = static_cast<int64_t>(attention.getWindow().value_or(std::numeric_limits<int64_t>::max()));
  const Tensor *starts = attention.getStarts() ? in[numberOf(attention, attention.getStarts())] : nullptr;
  return [window, starts, queries = std::move(queries), keys = std::move(keys)](int64_t b, int64_t s, int64_t t) {
    if (starts && static_cast<double>(keys[t]) < starts->data[b * static_cast<int64_t>(queries.size()) + s])
      return false;
    return keys[t] <= queries[s] && queries[s] - keys[t] < window;
  };
}

/// Returns the function that computes this attention's scores from products of q and k.
template <typename Op> static Scores scoresOf(Op attention, Inputs in) {
  Scores scores{attention.getScale().convertToDouble()};
  if (auto cap = attention.getSoftcap())
    scores.cap = cap->convertToDouble();
  if (Value bias = attention.getBias())
    scores.bias = in[numberOf(attention, bias)];
  if constexpr (requires { attention.getSinks(); })
    if (Value sinks = attention.getSinks())
      scores.sinks = in[numberOf(attention, sinks)];
  scores.queries = in[0]->shape[1];
  return scores;
}

/// Returns a function that is true if a query of packed attention sees a key. There are as many keys as queries, both
/// in the order of their positions.
template <typename Op> static Sight sightOf(Op attention) {
  if (!attention.getCausal())
    return [](int64_t, int64_t, int64_t) { return true; };
  return [](int64_t, int64_t s, int64_t t) { return t <= s; };
}

/// Attention with `factors` of bf16 rounds the weights and the gradients of scores to bf16 before it multiplies them.
static Rounding roundingOf(ArrayRef<Value> factors, bool rounds) {
  rounds &= llvm::all_of(factors, [](Value x) { return getElementTypeOrSelf(x).isBF16(); });
  return rounds ? roundToBf16 : [](double x) { return x; };
}

/// A mask that keeps every element as it is.
static double one(ArrayRef<int64_t>) { return 1; }

/// The mask of `drawn` for the random words in its operand 'random'. It keeps everything if there is no such operand.
static Mask drawnMask(DrawnOpInterface drawn, Inputs in, const EvaluateContext &context) {
  return maskOf(drawn, drawn.getRandom() ? in[numberOf(drawn, drawn.getRandom())] : nullptr, context);
}

/// The bounds of a clamp, from low to high.
template <typename Op> static std::pair<double, double> boundsOf(Op clamp) {
  return {clamp.getFrom() ? clamp.getFrom()->convertToDouble() : -INFINITY, clamp.getTo().convertToDouble()};
}

/// The function that a pointwise op with one operand applies to each element; null for any other op.
static std::function<double(double)> unaryFunction(Operation *op) {
  using Function = std::function<double(double)>;
  return llvm::TypeSwitch<Operation *, Function>(op)
      .Case([](ScaleOp scale) -> Function {
        return [factor = scale.getFactor().convertToDouble()](double x) { return x * factor; };
      })
      .Case([](CastOp cast) -> Function { // the interpreter rounds every result of type bf16
        if (getElementTypeOrSelf(cast.getResult()).isInteger())
          return [](double x) { return std::trunc(x); };
        return [](double x) { return x; };
      })
      .Case([](LogOp) -> Function { return [](double x) { return std::log(x); }; })
      .Case([](ExpOp) -> Function { return [](double x) { return std::exp(x); }; })
      .Case([](RecipOp) -> Function { return [](double x) { return 1 / x; }; })
      .Case([](SqrtOp) -> Function { return [](double x) { return std::sqrt(x); }; })
      .Case([](SinOp) -> Function { return [](double x) { return std::sin(x); }; })
      .Case([](CosOp) -> Function { return [](double x) { return std::cos(x); }; })
      .Case([](ActivationOp op) -> Function { return [kind = op.getKind()](double x) { return activation(kind, x); }; })
      .Case([](ClampOp clamp) -> Function {
        return [bounds = boundsOf(clamp)](double x) {
          return x < bounds.first ? bounds.first : x > bounds.second ? bounds.second : x;
        };
      })
      .Default(Function());
}

/// The function that a pointwise op with two operands applies to each pair of elements; null for any other op.
static std::function<double(double, double)> binaryFunction(Operation *op) {
  using Function = std::function<double(double, double)>;
  return llvm::TypeSwitch<Operation *, Function>(op)
      .Case([](AddOp) -> Function { return [](double a, double b) { return a + b; }; })
      .Case([](SubOp) -> Function { return [](double a, double b) { return a - b; }; })
      .Case([](ActivationGradOp op) -> Function {
        return [kind = op.getKind()](double dy, double x) { return dy * activationSlope(kind, x); };
      })
      .Case([](ClampGradOp clamp) -> Function {
        return
            [bounds = boundsOf(clamp)](double dy, double x) { return x < bounds.first || x > bounds.second ? 0 : dy; };
      })
      .Default(Function());
}

// Each `evaluateOp` returns the results of one kind of op. `in` has the tensors of its operands, `context` the shapes
// of its results on this rank and the offset of its first index.

static FailureOr<Tensors> evaluateOp(IotaOp iota, Inputs, const EvaluateContext &context) {
  Tensor indices(context.shapes[0]);
  for (int64_t i = 0; i < indices.size(); ++i)
    indices[i] = static_cast<double>(iota.at(context.offset + i));
  return Tensors{indices};
}

/// Counts, for each query of this rank, the keys of the block that come before it or at it in the order of positions.
static FailureOr<Tensors> evaluateOp(KeyCountsOp counts, Inputs in, const EvaluateContext &context) {
  Tensor result(context.shapes[0]);
  int64_t n = counts.getRanks(), me = static_cast<int64_t>((*in[0])[0]), length = result.size();
  int64_t shift = counts.getShift(); // the attribute is unsigned, and 2^64 is no multiple of most n
  // In step `shift` of a ring, the rank has the keys of the rank `shift` before it.
  int64_t keys = ((me - shift) % n + n) % n * length;
  for (int64_t s = 0; s < length; ++s)
    for (int64_t t = 0; t < length; ++t)
      result[s] += zigzagPosition(keys + t, n * length, n) <= zigzagPosition(me * length + s, n * length, n);
  return Tensors{result};
}

/// An einsum or a maximum over dims.
template <typename Op>
static FailureOr<Tensors> evaluateReduction(Op reduce, Inputs in, const EvaluateContext &context) {
  FactorRule rule = reduce.getFactorRule();
  if (rule.results.empty())
    return reduce.emitOpError() << "has a spec that does not match its operands";
  return Tensors{contract(rule, in, context.shapes[0], /*largest=*/!std::is_same_v<Op, EinsumOp>)};
}

/// The comparison chooses between operands 2 and 3, element by element.
static FailureOr<Tensors> evaluateOp(SelectOp select, Inputs in, const EvaluateContext &) {
  return pointwise(*in[2], [&](int64_t i) {
    double x = (*in[0])[i], y = (*in[1])[i];
    bool first = select.getKind() == ComparisonKind::Less        ? x < y
                 : select.getKind() == ComparisonKind::LessEqual ? x <= y
                                                                 : x == y;
    return (*in[first ? 2 : 3])[i];
  });
}

/// The mask needs the index of an element along each dim.
static FailureOr<Tensors> evaluateOp(DropoutOp dropout, Inputs in, const EvaluateContext &context) {
  Mask kept = drawnMask(dropout, in, context);
  SmallVector<int64_t> index(in[0]->shape.size());
  return pointwise(*in[0], [&](int64_t i) {
    int64_t rest = i;
    for (size_t d = index.size(); d-- > 0; rest /= in[0]->shape[d])
      index[d] = rest % in[0]->shape[d];
    return (*in[0])[i] * kept(index);
  });
}

static FailureOr<Tensors> evaluateOp(RopeOp op, Inputs in, const EvaluateContext &) {
  auto first = static_cast<int64_t>(op.getFirst());
  if (in[0]->shape.back() < first + 2 * in[1]->shape.back())
    return op.emitOpError() << "has tables wider than half a head";
  return rope(in, op.getInverse(), op.getInterleaved(), first);
}

static FailureOr<Tensors> evaluateOp(PackedAttentionOp a, Inputs in, const EvaluateContext &context) {
  Tensors parts = splitQkv(in[0]);
  return attention({&parts[0], &parts[1], &parts[2]}, {a.getScale().convertToDouble()}, sightOf(a),
                   roundingOf({a.getQkv()}, context.rounds), one);
}

static FailureOr<Tensors> evaluateOp(PackedAttentionGradOp a, Inputs in, const EvaluateContext &context) {
  Tensors parts = splitQkv(in[0]);
  Tensors gradients =
      attentionGrad({&parts[0], &parts[1], &parts[2], in[1], in[2], in[3]}, {a.getScale().convertToDouble()},
                    sightOf(a), roundingOf({a.getQkv(), a.getDout()}, context.rounds), one);
  return joinQkv({&gradients[0], &gradients[1], &gradients[2]});
}

static FailureOr<Tensors> evaluateOp(AttentionOp a, Inputs in, const EvaluateContext &context) {
  return attention(in, scoresOf(a, in), sightOf(a, in, context.offset),
                   roundingOf({a.getQ(), a.getK(), a.getV()}, context.rounds), drawnMask(a, in, context));
}

static FailureOr<Tensors> evaluateOp(AttentionGradOp a, Inputs in, const EvaluateContext &context) {
  return attentionGrad(in, scoresOf(a, in), sightOf(a, in, context.offset),
                       roundingOf({a.getQ(), a.getK(), a.getV(), a.getDout()}, context.rounds),
                       drawnMask(a, in, context),
                       /*ofBias=*/a.getDbias() != nullptr);
}

static FailureOr<Tensors> evaluateOp(CrossEntropyOp entropy, Inputs in, const EvaluateContext &) {
  for (double target : in[1]->data)
    if (target < 0 || target >= in[0]->shape.back())
      return entropy.emitOpError() << "target " << static_cast<int64_t>(target)
                                   << " is outside the vocabulary of the logits";
  return crossEntropy(in);
}

/// `largest` is the maximum over the whole vocabulary, so the sum may be one rank's addend.
static FailureOr<Tensors> evaluateOp(SumExpOp, Inputs in, const EvaluateContext &) {
  const Tensor &logits = *in[0], &largest = *in[1];
  int64_t v = logits.shape.back();
  return pointwise(largest, [&](int64_t r) {
    double sum = 0;
    for (int64_t i = 0; i < v; ++i)
      sum += std::exp(logits[r * v + i] - largest[r]);
    return sum;
  });
}

/// The logit of each target; 0 if another rank has the target's part of the vocabulary.
static FailureOr<Tensors> evaluateOp(PickOp, Inputs in, const EvaluateContext &context) {
  const Tensor &logits = *in[0], &targets = *in[1];
  int64_t v = logits.shape.back();
  return pointwise(targets, [&](int64_t r) {
    int64_t target = static_cast<int64_t>(targets[r]) - context.offset;
    return target >= 0 && target < v ? logits[r * v + target] : 0.0;
  });
}

/// Softmax minus one-hot, times the gradient of the loss of the row.
static FailureOr<Tensors> evaluateOp(CrossEntropyGradOp, Inputs in, const EvaluateContext &context) {
  const Tensor &logits = *in[0], &largest = *in[1], &sum = *in[2], &targets = *in[3], &dnll = *in[4];
  int64_t v = logits.shape.back();
  return pointwise(logits, [&](int64_t i) {
    int64_t r = i / v;
    double hit = static_cast<int64_t>(targets[r]) - context.offset == i % v ? 1 : 0;
    return dnll[r] * (std::exp(logits[i] - largest[r]) / sum[r] - hit);
  });
}

static FailureOr<Tensors> evaluateOp(MaskPaddingOp mask, Inputs in, const EvaluateContext &context) {
  int64_t last = in[0]->shape.back(), valid = mask.getValid();
  double value = mask.getValue().convertToDouble();
  return pointwise(*in[0], [&](int64_t i) { return context.offset + i % last >= valid ? value : (*in[0])[i]; });
}

/// A longer result is filled with zeros; a shorter one is cut off.
static FailureOr<Tensors> evaluateOp(ResizeOp, Inputs in, const EvaluateContext &context) {
  Tensor result(context.shapes[0]);
  Shape common(in[0]->shape);
  for (auto [n, to] : llvm::zip_equal(common, result.shape))
    n = std::min(n, to);
  Shape origin(common.size(), 0);
  result.merge(origin, in[0]->box(origin, common), [](double &to, double x) { to = x; });
  return Tensors{result};
}

/// The coefficient is NaN if the norm is too large or not finite. The optimizer then skips the step.
static FailureOr<Tensors> evaluateOp(ClipCoefficientOp, Inputs in, const EvaluateContext &) {
  Tensor coefficient;
  double norm = (*in[0])[0], clip = (*in[1])[PCRT_HYPER_CLIP], limit = (*in[1])[PCRT_HYPER_NORM_LIMIT];
  coefficient[0] = norm < limit ? std::min(1.0, clip / (norm + 1e-6)) : NAN;
  return Tensors{coefficient};
}

/// Checks the length of inputs that the runtime always fills in one length. IR that was written by hand may have
/// another one.
static LogicalResult checkRuntimeInputs(Operation *op, Inputs in) {
  if (auto drawn = dyn_cast<DrawnOpInterface>(op);
      drawn && drawn.getRandom() && in[numberOf(op, drawn.getRandom())]->size() != PCRT_RANDOM_COUNT)
    return op->emitOpError() << "needs " << int(PCRT_RANDOM_COUNT) << " words of 'random'";
  if (isa<ClipCoefficientOp, AdamWOp, SGDOp>(op) && in.back()->size() != PCRT_HYPER_COUNT)
    return op->emitOpError() << "needs " << int(PCRT_HYPER_COUNT) << " hyper-parameters, got " << in.back()->size();
  return success();
}

/// Pointwise ops need only a function of their elements; all other ops have an `evaluateOp`.
FailureOr<Tensors> pc::evaluate(Operation *op, Inputs in, const EvaluateContext &context) {
  if (failed(checkRuntimeInputs(op, in)))
    return failure();
  if (auto f = unaryFunction(op))
    return pointwise(*in[0], [&](int64_t i) { return f((*in[0])[i]); });
  if (auto f = binaryFunction(op))
    return pointwise(*in[0], [&](int64_t i) { return f((*in[0])[i], (*in[1])[i]); });
  return llvm::TypeSwitch<Operation *, FailureOr<Tensors>>(op)
      .Case<IotaOp, KeyCountsOp, SelectOp, DropoutOp, RopeOp, PackedAttentionOp, PackedAttentionGradOp, AttentionOp,
            AttentionGradOp, CrossEntropyOp, SumExpOp, PickOp, CrossEntropyGradOp, MaskPaddingOp, ResizeOp,
            ClipCoefficientOp>([&](auto op) { return evaluateOp(op, in, context); })
      .Case<EinsumOp, ReduceMaxOp>([&](auto op) { return evaluateReduction(op, in, context); })
      .Case([&](MaxMagnitudeOp op) {
        Tensor sizes = *in[0];
        for (double &x : sizes.data)
          x = std::abs(x);
        return evaluateReduction(op, {&sizes}, context);
      })
      .Case([&](MergeAttentionOp) { return mergeAttention(in); })
      .Case([&](CopyOp) { return Tensors{*in[0]}; })
      .Case([&](SoftmaxOp) { return softmax(in); })
      .Case([&](TopKOp choice) { return topK(in, static_cast<int64_t>(choice.getK())); })
      .Case([&](TopGroupsOp choice) {
        return topGroups(in, static_cast<int64_t>(choice.getGroups()), static_cast<int64_t>(choice.getKeep()));
      })
      .Case([&](AdmitOp op) { return admit(in, static_cast<int64_t>(op.getCapacity()), zigzagRanks(op)); })
      .Case([&](RoundOfRowsOp op) {
        return roundOfRows(in, static_cast<int64_t>(op.getRound()), static_cast<int64_t>(op.getRounds()),
                           static_cast<int64_t>(op.getLimit()));
      })
      .Case([&](ColumnsOp op) { return columns(op, in, context.shapes[0]); })
      .Case([&](StackOp) { return stack(in, context.shapes[0]); })
      .Case([&](UnstackOp op) { return unstack(in, static_cast<int64_t>(op.getIndex())); })
      .Case([&](ReshapeOp) {
        Tensor view = *in[0];
        view.shape = context.shapes[0];
        return Tensors{view};
      })
      .Case([&](EmbeddingOp op) { return embedding(op, in, context.shapes[0], context.offset); })
      .Case([&](EmbeddingGradOp op) { return embeddingGrad(op, in, context.shapes[0], context.offset); })
      .Case([&](LayerNormOp norm) { return layerNorm(in, norm.getEps().convertToDouble()); })
      .Case([&](LayerNormGradOp) { return layerNormGrad(in); })
      .Case([&](RMSNormOp norm) { return rmsNorm(in, norm.getEps().convertToDouble()); })
      .Case([&](RMSNormGradOp) { return rmsNormGrad(in); })
      .Case([&](RecurrenceOp op) { return recurrence(in, {op.getFactorRule(), op.getAlong(), op.getReverse()}); })
      .Case(
          [&](RecurrenceGradOp op) { return recurrenceGrad(in, {op.getFactorRule(), op.getAlong(), op.getReverse()}); })
      .Case([&](SplitQkvOp) { return splitQkv(in); })
      .Case([&](JoinQkvOp) { return joinQkv(in); })
      .Case([&](LogSumExpOp) { return logSumExp(in); })
      .Case([&](AdamWOp) { return adamw(in); })
      .Case([&](SGDOp) { return sgd(in); })
      .Case([&](CacheWriteOp) { return cacheWrite(in, context.offset); })
      .Case([&](CachedAttentionOp op) { return cachedAttention(op, in, context.offset); })
      .Case([&](GumbelOp op) { return gumbel(op, in, context.offset); })
      .Case([&](SamplingThresholdOp) { return samplingThreshold(in); })
      .Case([&](DecodeOp op) { return decode(op, in); })
      .Case([&](EncodeOp op) { return encode(op, in, context.shapes[1]); })
      .Case([&](EncodeScaledOp op) { return encode(op, in); })
      .Case([&](Float8ScaleOp op) { return scale(op, in); })
      .Case([&](EncodeAddendOp op) { return encodeAddend(op, in, context); })
      .Case([&](DecodeSumOp op) { return decodeSum(op, in, context); })
      .Default([](Operation *other) -> FailureOr<Tensors> {
        return other->emitOpError() << "is not supported by the interpreter";
      });
}
