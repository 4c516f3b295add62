//===- Routing.cpp - Builds the choice of experts and their weights -------------------===//
// Both kinds of routing end in the same four values (`Routing`): softmax scores with top-k, or sigmoid scores with
// top-k inside the best groups (DeepSeek V3). Differentiable parts are einsums; the choice itself has no gradient.
//===-----------------------------------------------------------------------------===//
#include "Routing.h"
#include "pc/IR/MoveRows.h"

using namespace mlir;
using namespace pc;

static Value einsum(OpBuilder &builder, Location loc, ArrayRef<int64_t> shape, StringRef spec, ValueRange inputs) {
  return EinsumOp::create(builder, loc, RankedTensorType::get(shape, builder.getF32Type()), spec, inputs);
}

Value pc::routedEinsum(OpBuilder &builder, Location loc, Type type, StringRef spec, ValueRange inputs, Value chosen,
                       int64_t k) {
  SmallVector<Value> all(inputs);
  all.push_back(chosen);
  return EinsumOp::create(builder, loc, type, builder.getStringAttr(spec), all, builder.getI64IntegerAttr(k));
}

static Value choose(OpBuilder &builder, Location loc, int64_t layer, Value x, int64_t k) {
  return TopKOp::create(builder, loc, x.getType(), x, builder.getI64IntegerAttr(k), builder.getI64IntegerAttr(layer),
                        nullptr, nullptr);
}

/// Weights are the scores of the chosen experts, divided by their sum if `normalized`.
Routing pc::route(OpBuilder &builder, Location loc, int64_t layer, Value logits, int64_t k, bool normalized) {
  Type type = logits.getType();
  ArrayRef<int64_t> shape = cast<RankedTensorType>(type).getShape();
  Routing routing;
  routing.scores = SoftmaxOp::create(builder, loc, type, logits);
  routing.chosen = choose(builder, loc, layer, logits, k);
  routing.weights = einsum(builder, loc, shape, "b s n, b s n -> b s n", {routing.scores, routing.chosen});
  if (normalized) {
    Value sum = einsum(builder, loc, shape.drop_back(), "b s n -> b s", {routing.weights});
    Value over = RecipOp::create(builder, loc, sum.getType(), sum);
    routing.weights = einsum(builder, loc, shape, "b s n, b s -> b s n", {routing.weights, over});
  }
  return routing;
}

/// Groups that are not kept get such low scores that none of their experts is chosen.
Routing pc::routeByGroups(OpBuilder &builder, Location loc, int64_t layer, Value logits, Value correction,
                          const GroupRouting &how) {
  Type type = logits.getType();
  ArrayRef<int64_t> shape = cast<RankedTensorType>(type).getShape();
  auto number = [&](double value) {
    auto scalar = RankedTensorType::get({}, builder.getF32Type());
    return ConstantOp::create(builder, loc, scalar, builder.getF64FloatAttr(value));
  };
  auto sum = [&](Value a, Value b) -> Value { return AddOp::create(builder, loc, a.getType(), a, b); };
  auto scaled = [&](Value x, double factor) -> Value {
    return ScaleOp::create(builder, loc, x.getType(), x, builder.getF64FloatAttr(factor));
  };
  Routing routing;
  routing.scores = ActivationOp::create(builder, loc, type, ActivationKind::Sigmoid, logits);
  Value choice = sum(routing.scores, einsum(builder, loc, shape, "n -> b s n", {correction}));
  if (how.kept < how.groups) { // adds 1e30 (0 - 1) to the scores of other groups
    Value kept = TopGroupsOp::create(builder, loc, type, choice, builder.getI64IntegerAttr(how.groups),
                                     builder.getI64IntegerAttr(how.kept));
    Value less = sum(kept, einsum(builder, loc, shape, "-> b s n", {number(-1)}));
    choice = sum(choice, scaled(less, 1e30));
  }
  // The correction affects only choices: weights are computed from the scores without it.
  routing.chosen = choose(builder, loc, layer, choice, how.k);
  routing.weights = einsum(builder, loc, shape, "b s n, b s n -> b s n", {routing.scores, routing.chosen});
  if (how.normalized) {
    Value total = einsum(builder, loc, shape.drop_back(), "b s n -> b s", {routing.weights});
    total = sum(total, einsum(builder, loc, shape.drop_back(), "-> b s", {number(1e-20)}));
    Value over = RecipOp::create(builder, loc, total.getType(), total);
    routing.weights = einsum(builder, loc, shape, "b s n, b s -> b s n", {routing.weights, over});
  }
  routing.weights = scaled(routing.weights, how.scale);
  return routing;
}

/// A capacity of at least the sequence's length limits nothing. Weights of choices that exceed the capacity become 0.
void pc::limit(OpBuilder &builder, Location loc, int64_t capacity, Routing &routing) {
  routing.taken = routing.chosen;
  auto type = cast<RankedTensorType>(routing.chosen.getType());
  if (!capacity || capacity >= type.getDimSize(1))
    return;
  routing.taken = AdmitOp::create(builder, loc, type, routing.chosen, builder.getI64IntegerAttr(capacity));
  routing.weights = einsum(builder, loc, type.getShape(), "b s n, b s n -> b s n", {routing.weights, routing.taken});
}

/// Adds the choices and the scores of one layer, over all its tokens.
void LoadBalance::add(OpBuilder &builder, Location loc, const Routing &routing) {
  int64_t experts = cast<RankedTensorType>(routing.chosen.getType()).getShape().back();
  auto addTo = [&](Value &sum, Value each) {
    Value more = einsum(builder, loc, {experts}, "b s n -> n", {each});
    sum = sum ? AddOp::create(builder, loc, more.getType(), sum, more).getResult() : more;
  };
  addTo(counts, routing.chosen);
  addTo(scores, routing.scores);
}

// If R is the number of tokens times layers, the counts add up to k R. So R, which differs between ranks and
// microbatches, need not be known.
Value LoadBalance::loss(OpBuilder &builder, Location loc, double factor, int64_t k) const {
  auto experts = static_cast<double>(cast<RankedTensorType>(counts.getType()).getDimSize(0));
  Value total = einsum(builder, loc, {}, "n ->", {counts});
  Value over = RecipOp::create(builder, loc, total.getType(), total);
  Value product = einsum(builder, loc, {}, "n, n ->", {counts, scores});
  Value loss = einsum(builder, loc, {}, ", , ->", {product, over, over});
  auto all = builder.getF64FloatAttr(factor * experts * static_cast<double>(k) * static_cast<double>(k));
  return ScaleOp::create(builder, loc, loss.getType(), loss, all);
}
