//===- Gradients.cpp - One gradient rule per op ---------------------------------------===//
// The rule of an op emits its gradient with respect to each live operand, from the gradient `dy` of its first result.
// Ops that need no formula of their own (einsum, add, scale) give einsums and sums, so that placement rules hold for
// them unchanged. An op without a rule is an error.
//===-----------------------------------------------------------------------------===//
#include "Gradients.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;

std::string pc::dimLetters(Value value) {
  std::string text;
  for (int64_t i = 0, e = cast<RankedTensorType>(value.getType()).getRank(); i < e; ++i)
    text += (i ? " x" : "x") + std::to_string(i);
  return text;
}

void Gradients::add(Value value, Value gradient) {
  if (!isLive(value))
    return;
  Value &sum = gradients[value];
  sum = sum ? AddOp::create(builder, gradient.getLoc(), sum.getType(), sum, gradient).getResult() : gradient;
}

/// The type of the gradient of attention's bias, which has one bias for each batch row of the queries.
static Type ofRows(Value bias, Value queries) {
  auto type = cast<RankedTensorType>(bias.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape.insert(shape.begin(), cast<RankedTensorType>(queries.getType()).getDimSize(0));
  return RankedTensorType::get(shape, type.getElementType());
}

/// The results of a split have separate gradients, which are joined to the gradient of its operand.
LogicalResult Gradients::join(SplitQkvOp split) {
  SmallVector<Value> parts;
  for (Value result : split->getResults())
    if (Value gradient = of(result))
      parts.push_back(gradient);
  if (parts.empty() || !isLive(split.getX()))
    return success();
  if (parts.size() < split->getNumResults())
    return split.emitOpError() << "has a gradient for only some of its parts, which is not supported";
  add(split.getX(), JoinQkvOp::create(builder, split.getLoc(), split.getX().getType(), parts[0], parts[1], parts[2],
                                      split.getTables()));
  return success();
}

/// Follows all readers of the value. Returns true if every path ends in a choice.
bool pc::isOfChoices(Value value) {
  bool chooses = false;
  llvm::SetVector<Value> values;
  values.insert(value);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].use_empty()) // it may be the loss
      return false;
    for (Operation *user : values[i].getUsers()) {
      chooses |= isa<TopKOp>(user);
      if (!user->getNumResults())
        return false;
      if (!isa<TopKOp>(user))
        values.insert(user->result_begin(), user->result_end());
    }
  }
  return chooses;
}

/// The rules for one op: `rule(op)` adds to the gradient of each live operand of `op`.
struct Gradients::Rules {
  Gradients &gradients;
  OpBuilder &builder;
  Location loc;
  Value dy; ///< The gradient of the op's first result, of the same type.

  void add(Value value, Value gradient) { gradients.add(value, gradient); }

  /// a * b, element by element.
  Value product(Value a, Value b) {
    std::string x = dimLetters(a);
    return EinsumOp::create(builder, loc, a.getType(), x + ", " + x + " -> " + x, ValueRange{a, b});
  }

  Value scaled(Value x, double factor) { return ScaleOp::create(builder, loc, x.getType(), x, llvm::APFloat(factor)); }

  /// The gradient of operand i is einsum(dy, the other operands) -> the dims of operand i. It is broadcast along
  /// factors that only operand i has. For a routed einsum, the gradient also has the mask as its last operand. Fails
  /// with an error if an operand is a diagonal.
  LogicalResult rule(EinsumOp op) {
    FactorRule rule = op.getFactorRule();
    for (ArrayRef<int> dims : rule.operands)
      for (int f : dims)
        if (llvm::count(dims, f) > 1)
          return op->emitOpError() << "needs the gradient of a diagonal (factor '" << rule.factors[f].name
                                   << "' occurs twice in one operand), which is not supported";
    auto names = [&](ArrayRef<int> dims) {
      std::string text;
      for (int f : dims)
        text += (text.empty() ? "" : " ") + rule.factors[f].name;
      return text;
    };
    for (auto [i, operand] : llvm::enumerate(op.getInputs())) {
      if (!gradients.isLive(operand))
        continue;
      std::string spec = names(rule.results[0]);
      SmallVector<Value> inputs{dy};
      for (auto [j, other] : llvm::enumerate(op.getInputs()))
        if (j != i) {
          spec += ", " + names(rule.operands[j]);
          inputs.push_back(other);
        }
      spec += " -> " + names(rule.operands[i]);
      add(operand,
          EinsumOp::create(builder, loc, operand.getType(), builder.getStringAttr(spec), inputs, op.getRoutedAttr()));
    }
    return success();
  }

  LogicalResult rule(AddOp sum) {
    add(sum.getA(), dy);
    add(sum.getB(), dy);
    return success();
  }

  LogicalResult rule(SubOp difference) {
    add(difference.getA(), dy);
    if (gradients.isLive(difference.getB()))
      add(difference.getB(), scaled(dy, -1));
    return success();
  }

  LogicalResult rule(ScaleOp scale) {
    add(scale.getX(), ScaleOp::create(builder, loc, dy.getType(), dy, scale.getFactor()));
    return success();
  }

  LogicalResult rule(CopyOp copy) {
    add(copy.getX(), dy);
    return success();
  }

  LogicalResult rule(CastOp cast) {
    add(cast.getX(), CastOp::create(builder, loc, cast.getX().getType(), dy));
    return success();
  }

  LogicalResult rule(LogOp log) {
    add(log.getX(), product(dy, RecipOp::create(builder, loc, dy.getType(), log.getX())));
    return success();
  }

  LogicalResult rule(ExpOp exp) {
    add(exp.getX(), product(dy, exp.getResult()));
    return success();
  }

  /// d(1 / x) = -1 / x^2.
  LogicalResult rule(RecipOp recip) {
    Value square = product(recip.getResult(), recip.getResult());
    Value d = product(dy, square);
    add(recip.getX(), scaled(d, -1));
    return success();
  }

  /// d(sqrt x) = 1 / (2 sqrt x).
  LogicalResult rule(SqrtOp root) {
    Value d = product(dy, RecipOp::create(builder, loc, dy.getType(), root.getResult()));
    add(root.getX(), scaled(d, 0.5));
    return success();
  }

  LogicalResult rule(SinOp sine) {
    add(sine.getX(), product(dy, CosOp::create(builder, loc, dy.getType(), sine.getX())));
    return success();
  }

  LogicalResult rule(CosOp cosine) {
    Value d = product(dy, SinOp::create(builder, loc, dy.getType(), cosine.getX()));
    add(cosine.getX(), scaled(d, -1));
    return success();
  }

  /// Each element of dy goes to the operand that was selected there.
  LogicalResult rule(SelectOp select) {
    auto type = cast<RankedTensorType>(dy.getType());
    Value zero = ConstantOp::create(builder, loc, RankedTensorType::get({}, type.getElementType()), llvm::APFloat(0.0));
    Value zeros = EinsumOp::create(builder, loc, type, "-> " + dimLetters(dy), ValueRange{zero});
    auto chosen = [&](Value a, Value b) {
      return SelectOp::create(builder, loc, type, select.getKind(), select.getX(), select.getY(), a, b);
    };
    if (gradients.isLive(select.getA()))
      add(select.getA(), chosen(dy, zeros));
    if (gradients.isLive(select.getB()))
      add(select.getB(), chosen(zeros, dy));
    return success();
  }

  LogicalResult rule(ActivationOp activation) {
    add(activation.getX(),
        ActivationGradOp::create(builder, loc, dy.getType(), activation.getKind(), dy, activation.getX()));
    return success();
  }

  LogicalResult rule(ClampOp clamp) {
    add(clamp.getX(),
        ClampGradOp::create(builder, loc, dy.getType(), dy, clamp.getX(), clamp.getFromAttr(), clamp.getToAttr()));
    return success();
  }

  /// The gradients of the selected columns return to the places of these columns; the other columns get zeros.
  LogicalResult rule(ColumnsOp columns) {
    auto back = builder.getI64IntegerAttr(-static_cast<int64_t>(columns.getFrom()));
    add(columns.getX(), ColumnsOp::create(builder, loc, columns.getX().getType(), dy, columns.getDimAttr(), back,
                                          columns.getEveryAttr(), columns.getStepAttr()));
    return success();
  }

  LogicalResult rule(ReshapeOp view) {
    auto [from, to] = view.getSpec().split("->");
    auto back = builder.getStringAttr(to.trim() + " -> " + from.trim());
    add(view.getX(), ReshapeOp::create(builder, loc, view.getX().getType(), back, dy));
    return success();
  }

  /// A dropout with the same random operand drops the elements of the gradient whose values were dropped.
  LogicalResult rule(DropoutOp dropout) {
    add(dropout.getX(),
        DropoutOp::create(builder, loc, dy.getType(), dy, dropout.getRandom(), ValueRange(), dropout.getDropAttr()));
    return success();
  }

  /// d = y (dy - sum(y dy)).
  LogicalResult rule(SoftmaxOp softmax) {
    Value y = softmax.getResult(), each = product(dy, y);
    std::string x = dimLetters(y), rows = StringRef(x).rsplit('x').first.rtrim().str();
    auto type = cast<RankedTensorType>(y.getType());
    auto ofRows = RankedTensorType::get(type.getShape().drop_back(), type.getElementType());
    Value sum = EinsumOp::create(builder, loc, ofRows, x + " -> " + rows, ValueRange{each});
    Value share = EinsumOp::create(builder, loc, type, x + ", " + rows + " -> " + x, ValueRange{y, sum});
    add(softmax.getX(), SubOp::create(builder, loc, type, each, share));
    return success();
  }

  LogicalResult rule(EmbeddingOp embedding) {
    add(embedding.getTable(),
        EmbeddingGradOp::create(builder, loc, embedding.getTable().getType(), dy, embedding.getIds(), Value(),
                                embedding.getPaddingAttr(), embedding.getBatchAttr()));
    return success();
  }

  /// The gradient op reuses the mean and the deviation of the forward pass.
  LogicalResult rule(LayerNormOp norm) {
    auto grad = LayerNormGradOp::create(builder, loc, norm.getX().getType(), norm.getGamma().getType(),
                                        norm.getBeta().getType(), dy, norm.getX(), norm.getMean(), norm.getRstd(),
                                        norm.getGamma());
    add(norm.getX(), grad.getDx());
    add(norm.getGamma(), grad.getDgamma());
    add(norm.getBeta(), grad.getDbeta());
    return success();
  }

  LogicalResult rule(RMSNormOp norm) {
    auto grad = RMSNormGradOp::create(builder, loc, norm.getX().getType(), norm.getGamma().getType(), dy, norm.getX(),
                                      norm.getRstd(), norm.getGamma());
    add(norm.getX(), grad.getDx());
    add(norm.getGamma(), grad.getDgamma());
    return success();
  }

  /// A rotation is orthogonal, so its transpose is its inverse.
  LogicalResult rule(RopeOp rope) {
    auto inverse = rope.getInverse() ? UnitAttr() : builder.getUnitAttr();
    add(rope.getX(), RopeOp::create(builder, loc, dy.getType(), dy, rope.getCos(), rope.getSin(), inverse,
                                    rope.getInterleavedAttr(), rope.getFirstAttr()));
    return success();
  }

  /// A sink has the weight w = exp(sink - lse) in the softmax of each query, and its value is 0. So its gradient is
  /// computed like the gradient of a score: w (0 - dy o).
  Value gradientOfSinks(AttentionOp attention) {
    Value lse = attention.getLse(), sinks = attention.getSinks();
    Type each = lse.getType();
    Value all = EinsumOp::create(builder, loc, each, "k g -> b k g s", ValueRange{sinks});
    Value weights = ExpOp::create(builder, loc, each, SubOp::create(builder, loc, each, all, lse));
    Value dots =
        EinsumOp::create(builder, loc, each, "b s k g d, b s k g d -> b k g s", ValueRange{dy, attention.getO()});
    Value sum = EinsumOp::create(builder, loc, sinks.getType(), "b k g s, b k g s -> k g", ValueRange{weights, dots});
    return scaled(sum, -1);
  }

  /// The gradient op recomputes the scores. It also gives the gradient of the bias if that is trained.
  LogicalResult rule(AttentionOp attention) {
    Value bias = attention.getBias();
    auto grad = AttentionGradOp::create(
        builder, loc, attention.getQ().getType(), attention.getK().getType(), attention.getV().getType(),
        bias && gradients.isLive(bias) ? ofRows(bias, attention.getQ()) : Type(), attention.getQ(), attention.getK(),
        attention.getV(), attention.getO(), attention.getLse(), dy, bias, attention.getStarts(), attention.getRandom(),
        Value(), ValueRange(), attention.getScaleAttr(), attention.getCausalAttr(), attention.getWindowAttr(),
        attention.getSoftcapAttr(), attention.getDropAttr());
    add(attention.getQ(), grad.getDq());
    add(attention.getK(), grad.getDk());
    add(attention.getV(), grad.getDv());
    // The bias is shared by all batch rows, and the kernel gives its gradient by row.
    if (Value rows = grad.getDbias())
      add(bias, EinsumOp::create(builder, loc, bias.getType(), "b k g r -> k g r", rows));
    if (Value sinks = attention.getSinks(); sinks && gradients.isLive(sinks))
      add(sinks, gradientOfSinks(attention));
    return success();
  }

  LogicalResult rule(PackedAttentionOp attention) {
    add(attention.getQkv(),
        PackedAttentionGradOp::create(builder, loc, attention.getQkv().getType(), attention.getQkv(), attention.getO(),
                                      attention.getLse(), dy, attention.getScale(), attention.getCausal()));
    return success();
  }

  /// The gradient is one op, because it is a recurrence in the other direction.
  LogicalResult rule(RecurrenceOp recurrence) {
    Value a = recurrence.getA(), b = recurrence.getB();
    auto grad =
        RecurrenceGradOp::create(builder, loc, a.getType(), b.getType(), recurrence.getSpecAttr(),
                                 recurrence.getAlongAttr(), recurrence.getReverseAttr(), a, recurrence.getH(), dy);
    add(a, grad.getDa());
    add(b, grad.getDb());
    return success();
  }

  LogicalResult rule(MaskPaddingOp mask) {
    add(mask.getX(), MaskPaddingOp::create(builder, loc, dy.getType(), dy, mask.getValidAttr(),
                                           builder.getF64FloatAttr(0.0), Value()));
    return success();
  }
};

/// Adds the gradients of the operands by the rule of the op's kind.
LogicalResult Gradients::differentiate(Operation *op) {
  if (auto split = dyn_cast<SplitQkvOp>(op))
    return join(split);
  // Only the first result of an op carries a gradient; the others (statistics) exist for the backward pass.
  for (Value result : op->getResults().drop_front(op->getNumResults() ? 1 : 0))
    if (of(result))
      return op->emitOpError() << "needs a gradient through a result other than its first, which is not supported";
  Value dy = op->getNumResults() ? of(op->getResult(0)) : Value();
  if (!dy || llvm::none_of(op->getOperands(), [&](Value v) { return isLive(v); }))
    return success();
  Rules rules{*this, builder, op->getLoc(), dy};
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<EinsumOp, AddOp, SubOp, ScaleOp, CopyOp, CastOp, LogOp, ExpOp, RecipOp, SqrtOp, SinOp, CosOp, SelectOp,
            ActivationOp, ClampOp, ColumnsOp, ReshapeOp, DropoutOp, SoftmaxOp, EmbeddingOp, LayerNormOp, RMSNormOp,
            RopeOp, AttentionOp, PackedAttentionOp, RecurrenceOp, MaskPaddingOp>(
          [&](auto op) { return rules.rule(op); })
      .Default([](Operation *other) -> LogicalResult {
        return other->emitOpError() << "has no gradient rule, so it cannot be part of a model that is trained";
      });
}
