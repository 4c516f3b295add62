//===- Softmax.cpp - Raises softmax, cross-entropy and activations ----------------------------===//
// e^x divided by its sum does not change if a number per row is subtracted from x. So such a subtraction is dropped.
//===-----------------------------------------------------------------------------===//
#include "Patterns.h"
#include "Product.h"

using namespace mlir;
using namespace pc;

/// Returns the x for which `value` is e^x, or null.
static Value exponentOf(Value value) {
  auto exp = value.getDefiningOp<ExpOp>();
  return exp ? exp.getX() : Value();
}

namespace {

/// The sum of e^x along one dim of x.
struct SumOfExp {
  Value x;
  ReducedDim sum;
};

} // namespace

static std::optional<SumOfExp> sumOfExp(Value value) {
  ProductForm product = productOf(value);
  Value x = product.terms.size() == 1 ? exponentOf(product.terms[0].value) : Value();
  std::optional<ReducedDim> sum = x && product.scale == 1 ? reducedDim(product, product.terms[0]) : std::nullopt;
  return sum ? std::optional(SumOfExp{x, *sum}) : std::nullopt;
}

static bool isLogSumExp(Value value) { return value.getDefiningOp<LogSumExpOp>() != nullptr; }

/// Looks for a factor 1 / (sum of e^x) and a factor e^x in one product. The remaining factors stay.
bool pc::raiseSoftmax(Operation *op) {
  ProductForm product = isa<EinsumOp, ScaleOp>(op) ? productOf(op->getResult(0)) : ProductForm();
  if (product.summed())
    return false;
  for (auto [i, inverse] : llvm::enumerate(product.terms)) {
    auto recip = inverse.value.getDefiningOp<RecipOp>();
    auto sum = recip ? sumOfExp(recip.getX()) : std::nullopt;
    if (!sum)
      continue;
    auto [x, reduced] = *sum;
    int dim = reduced.dim;
    for (auto [j, exp] : llvm::enumerate(product.terms)) {
      // Both factors must be along the same dims, and have the same x.
      auto along = llvm::map_to_vector(reduced.rows, [&](int row) { return exp.dims[row]; });
      if (exponentOf(exp.value) != x || along != inverse.dims)
        continue;
      OpBuilder builder(op);
      double any;
      // The softmax op subtracts the largest element by itself, so numbers that are subtracted from all elements of a
      // row are removed here.
      for (auto less = x.getDefiningOp<SubOp>(); less && broadcastAlong(less.getB(), dim, &any);
           less = x.getDefiningOp<SubOp>())
        x = less.getA();
      Value last = moveToEnd(builder, op->getLoc(), x, dim);
      Term softmax{SoftmaxOp::create(builder, op->getLoc(), last.getType(), last), without(exp.dims, dim)};
      softmax.dims.push_back(exp.dims[dim]);
      SmallVector<Term> terms{softmax};
      for (auto [k, term] : llvm::enumerate(product.terms))
        if (k != i && k != j)
          terms.push_back(term);
      return replaceResult(op, multiply(builder, op->getLoc(), terms, dimsOf(op->getResult(0)), product.scale,
                                        typeOf(op->getResult(0)).getShape()));
    }
  }
  return false;
}

/// (x - m) - (logsumexp(x) - m), a log softmax, becomes x - logsumexp(x).
static bool cancelSubtracted(SubOp op) {
  auto less = op.getA().getDefiningOp<SubOp>();
  for (int dim : less ? dimsOf(less) : SmallVector<int>()) {
    Value subtracted = broadcastAlong(less.getB(), dim), sum = broadcastAlong(op.getB(), dim);
    auto lessSum = sum ? sum.getDefiningOp<SubOp>() : SubOp();
    if (!subtracted || !lessSum || lessSum.getB() != subtracted || !isLogSumExp(lessSum.getA()))
      continue;
    OpBuilder builder(op);
    Value lse = multiply(builder, op.getLoc(), Term{lessSum.getA(), without(dimsOf(less), dim)}, dimsOf(less), 1,
                         typeOf(less).getShape());
    return replaceResult(op, SubOp::create(builder, op.getLoc(), typeOf(op), less.getA(), lse));
  }
  return false;
}

/// Recognises the logarithm of a sum of exponentials. If a number is subtracted from x before and added to the
/// logarithm after, removes both.
bool pc::raiseLogSumExp(Operation *op) {
  if (auto sum = dyn_cast<AddOp>(op)) {
    // (logsumexp(x) - m) + m is logsumexp(x).
    for (auto [value, more] : inBothOrders(sum))
      if (auto less = value.getDefiningOp<SubOp>(); less && less.getB() == more && isLogSumExp(less.getA()))
        return replaceResult(op, less.getA());
    return false;
  }
  if (auto difference = dyn_cast<SubOp>(op))
    return cancelSubtracted(difference);
  auto log = dyn_cast<LogOp>(op);
  auto exp = log ? sumOfExp(log.getX()) : std::nullopt;
  if (!exp)
    return false;
  auto [x, reduced] = *exp;
  auto [dim, rows] = reduced;
  auto less = x.getDefiningOp<SubOp>();
  Value subtracted = less ? broadcastAlong(less.getB(), dim) : Value();
  if (subtracted && !llvm::is_sorted(rows))
    return false;
  if (subtracted)
    x = less.getA();
  OpBuilder builder(op);
  Location loc = op->getLoc();
  Value last = moveToEnd(builder, loc, x, dim);
  auto type = RankedTensorType::get(typeOf(last).getShape().drop_back(), typeOf(last).getElementType());
  Value raised = LogSumExpOp::create(builder, loc, type, last);
  raised = multiply(builder, loc, Term{raised, without(dimsOf(x), dim)}, rows);
  if (subtracted)
    raised = SubOp::create(builder, loc, type, raised, subtracted);
  return replaceResult(op, raised);
}

/// Returns the cross-entropy of logits if `lse` is their logsumexp; otherwise null. The logits are a term, because they
/// may have been transposed for the logsumexp.
static Value negativeLogLikelihood(Operation *op, Value lse, const Term &logits, Value targets) {
  auto sum = lse ? lse.getDefiningOp<LogSumExpOp>() : LogSumExpOp();
  if (!sum)
    return {};
  Term summed = straightened({sum.getX(), dimsOf(sum.getX())}), picked = straightened(logits);
  if (summed.value != picked.value || summed.dims != picked.dims)
    return {};
  OpBuilder builder(op);
  return CrossEntropyOp::create(builder, op->getLoc(), lse.getType(), sum.getX(), targets);
}

/// The loss has one of two forms: logsumexp(x) - x[target], or -(x - logsumexp(x))[target].
bool pc::raiseCrossEntropy(Operation *op) {
  if (auto less = dyn_cast<SubOp>(op)) {
    auto pick = less.getB().getDefiningOp<PickOp>();
    Value nll =
        pick ? negativeLogLikelihood(op, less.getA(), {pick.getLogits(), dimsOf(pick.getLogits())}, pick.getTargets())
             : Value();
    return nll && replaceResult(op, nll);
  }
  // An entry of x - logsumexp(x), which may be transposed.
  auto pick = dyn_cast<PickOp>(op);
  if (!pick)
    return false;
  Term entry = straightened({pick.getLogits(), dimsOf(pick.getLogits())});
  auto less = entry.value.getDefiningOp<SubOp>();
  auto last = static_cast<int>(llvm::find(entry.dims, entry.dims.size() - 1) - entry.dims.begin());
  Value nll =
      less ? negativeLogLikelihood(op, broadcastAlong(less.getB(), last), {less.getA(), entry.dims}, pick.getTargets())
           : Value();
  if (!nll)
    return false;
  OpBuilder builder(op);
  return replaceResult(op, ScaleOp::create(builder, op->getLoc(), nll.getType(), nll, builder.getF64FloatAttr(-1)));
}

//===---------------------------------------------------------------------------===//
// Activations
//===---------------------------------------------------------------------------===//

static bool isNear(double a, double b) { return std::abs(a - b) <= 1e-4 * std::abs(b); }

/// Returns the x for which `value` is x + number, or null.
static Value lessConstant(Value value, double number) {
  if (auto sum = value.getDefiningOp<AddOp>())
    for (auto [x, more] : inBothOrders(sum))
      if (constantOf(more) == number)
        return x;
  return {};
}

/// Returns true if `product` is a multiple of x to the power of `count`.
static bool isPower(const ProductForm &product, Value x, size_t count) {
  return !product.summed() && product.terms.size() == count &&
         llvm::all_of(product.terms, [&](const Term &t) { return t.value == x && t.dims == dimsOf(x); });
}

/// Returns the x for which `value` is sigmoid(x), as an op or as 1 / (1 + e^-x); or null.
static Value sigmoidOf(Value value) {
  if (auto activation = value.getDefiningOp<ActivationOp>())
    return activation.getKind() == ActivationKind::Sigmoid ? activation.getX() : Value();
  auto recip = value.getDefiningOp<RecipOp>();
  Value exp = recip ? lessConstant(recip.getX(), 1) : Value(), exponent = exp ? exponentOf(exp) : Value();
  auto minus = exponent ? exponent.getDefiningOp<ScaleOp>() : ScaleOp();
  return minus && minus.getFactor().convertToDouble() == -1 ? minus.getX() : Value();
}

/// Returns the x for which `value` is 1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)), or null.
static Value geluGateOf(Value value) {
  Value tanh = lessConstant(value, 1);
  auto activation = tanh ? tanh.getDefiningOp<ActivationOp>() : ActivationOp();
  if (!activation || activation.getKind() != ActivationKind::Tanh)
    return {};
  auto scaled = activation.getX().getDefiningOp<ScaleOp>();
  auto sum = scaled ? scaled.getX().getDefiningOp<AddOp>() : AddOp();
  if (!sum || !isNear(scaled.getFactor().convertToDouble(), 0.7978845608))
    return {};
  for (auto [x, cube] : inBothOrders(sum)) {
    ProductForm product = productOf(cube, x);
    if (isNear(product.scale, 0.044715) && isPower(product, x, 3))
      return x;
  }
  return {};
}

/// sigmoid may be spelled out anywhere. silu is x times its sigmoid, and gelu is x / 2 times its gate.
bool pc::raiseActivation(Operation *op) {
  if (Value x = isa<RecipOp>(op) ? sigmoidOf(op->getResult(0)) : Value()) {
    OpBuilder builder(op);
    return replaceResult(op, ActivationOp::create(builder, op->getLoc(), x.getType(), ActivationKind::Sigmoid, x));
  }
  if (!isa<EinsumOp, ScaleOp>(op))
    return false;
  for (const Term &gate : productOf(op->getResult(0)).terms) {
    Value silu = sigmoidOf(gate.value), gelu = silu ? Value() : geluGateOf(gate.value), x = silu ? silu : gelu;
    if (!x)
      continue;
    ProductForm product = productOf(op->getResult(0), x); // x may be a product itself
    auto isRead = [&](Value value) {
      return llvm::find_if(product.terms,
                           [&](const Term &term) { return term.value == value && term.dims == dimsOf(x); });
    };
    auto of = isRead(x), by = isRead(gate.value);
    if (product.summed() || of == product.terms.end() || by == product.terms.end() || (gelu && product.scale != 0.5))
      continue;
    OpBuilder builder(op);
    auto kind = silu ? ActivationKind::Silu : ActivationKind::GeluTanh;
    of->value = ActivationOp::create(builder, op->getLoc(), x.getType(), kind, x);
    product.terms.erase(by);
    return replaceResult(op, multiply(builder, op->getLoc(), product.terms, dimsOf(op->getResult(0)),
                                      gelu ? 1 : product.scale, typeOf(op->getResult(0)).getShape()));
  }
  return false;
}
