//===- Softmax.cpp - softmax, logsumexp, cross_entropy and activations in pieces --------------===//
// e^x over its sum does not change if a number per row is subtracted from x, so what is subtracted falls away.
//===-----------------------------------------------------------------------------===//
#include "Patterns.h"
#include "Product.h"

#include "llvm/ADT/Sequence.h"

using namespace mlir;
using namespace pc;

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

/// The x of `value` = e^x, or null.
static Value exponentOf(Value value) {
  auto exp = value.getDefiningOp<ExpOp>();
  return exp ? exp.getX() : Value();
}

namespace {

/// The sum of e^x along `dim`, along the other dims of x in the order of `rows`.
struct SumOfExp {
  Value x;
  int dim;
  SmallVector<int> rows; ///< for each dim of the sum, the dim of x
};

} // namespace

static std::optional<SumOfExp> sumOfExp(Value value) {
  ProductForm product = productOf(value);
  Value x = product.terms.size() == 1 ? exponentOf(product.terms[0].value) : Value();
  if (!x || product.scale != 1 || product.summed() != 1 || typeOf(x).getRank() != product.rank + 1)
    return std::nullopt;
  SumOfExp sum{x, 0, SmallVector<int>(product.rank)};
  for (auto [d, dim] : llvm::enumerate(product.terms[0].dims))
    (dim == product.rank ? sum.dim : sum.rows[dim]) = static_cast<int>(d);
  return sum;
}

static bool isLogSumExp(Value value) { return value.getDefiningOp<LogSumExpOp>() != nullptr; }

bool pc::raiseSoftmax(Operation *op) {
  ProductForm product = isa<EinsumOp, ScaleOp>(op) ? productOf(op->getResult(0)) : ProductForm();
  if (product.summed())
    return false;
  for (auto [i, inverse] : llvm::enumerate(product.terms)) {
    auto recip = inverse.value.getDefiningOp<RecipOp>();
    auto sum = recip ? sumOfExp(recip.getX()) : std::nullopt;
    if (!sum)
      continue;
    auto [x, dim, rowsOfSum] = *sum;
    for (auto [j, exp] : llvm::enumerate(product.terms)) {
      auto along = llvm::map_to_vector(rowsOfSum, [&](int row) { return exp.dims[row]; });
      if (exponentOf(exp.value) != x || along != inverse.dims)
        continue;
      OpBuilder builder(op);
      double any;
      for (auto less = x.getDefiningOp<SubOp>(); less && broadcastAlong(less.getB(), dim, &any);
           less = x.getDefiningOp<SubOp>())
        x = less.getA();
      Value last = moveToEnd(builder, op->getLoc(), x, dim);
      Term softmax{SoftmaxOp::create(builder, op->getLoc(), last.getType(), last), exp.dims};
      softmax.dims.erase(softmax.dims.begin() + dim);
      softmax.dims.push_back(exp.dims[dim]);
      SmallVector<Term> terms{softmax};
      for (auto [k, term] : llvm::enumerate(product.terms))
        if (k != i && k != j)
          terms.push_back(term);
      op->getResult(0).replaceAllUsesWith(
          multiply(builder, op->getLoc(), terms, llvm::to_vector(llvm::seq(0, product.rank)), product.scale));
      return true;
    }
  }
  return false;
}

/// (x - m) - (logsumexp(x) - m), a log softmax, becomes x - logsumexp(x).
static bool cancelSubtracted(SubOp op) {
  auto less = op.getA().getDefiningOp<SubOp>();
  int rank = less ? static_cast<int>(typeOf(less).getRank()) : 0;
  for (int dim : llvm::seq(0, rank)) {
    Value subtracted = broadcastAlong(less.getB(), dim), sum = broadcastAlong(op.getB(), dim);
    auto lessSum = sum ? sum.getDefiningOp<SubOp>() : SubOp();
    if (!subtracted || !lessSum || lessSum.getB() != subtracted || !isLogSumExp(lessSum.getA()))
      continue;
    auto all = llvm::to_vector(llvm::seq(0, rank)), others = all;
    others.erase(others.begin() + dim);
    OpBuilder builder(op);
    Value lse = multiply(builder, op.getLoc(), Term{lessSum.getA(), others}, all);
    op.getResult().replaceAllUsesWith(SubOp::create(builder, op.getLoc(), typeOf(op), less.getA(), lse).getResult());
    return true;
  }
  return false;
}

bool pc::raiseLogSumExp(Operation *op) {
  Value result = op->getResults()[0];
  if (auto sum = dyn_cast<AddOp>(op)) {
    // What was subtracted from x is added again.
    for (auto [value, more] : {std::pair(sum.getA(), sum.getB()), std::pair(sum.getB(), sum.getA())})
      if (auto less = value.getDefiningOp<SubOp>(); less && less.getB() == more && isLogSumExp(less.getA())) {
        result.replaceAllUsesWith(less.getA());
        return true;
      }
    return false;
  }
  if (auto difference = dyn_cast<SubOp>(op))
    return cancelSubtracted(difference);
  auto log = dyn_cast<LogOp>(op);
  auto exp = log ? sumOfExp(log.getX()) : std::nullopt;
  if (!exp)
    return false;
  auto [x, dim, rows] = *exp;
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
  auto others = llvm::to_vector(llvm::seq(0, static_cast<int>(typeOf(x).getRank())));
  others.erase(others.begin() + dim);
  raised = multiply(builder, loc, Term{raised, others}, rows);
  if (subtracted)
    raised = SubOp::create(builder, loc, type, raised, subtracted);
  result.replaceAllUsesWith(raised);
  return true;
}

bool pc::raiseCrossEntropy(Operation *op) {
  auto nllOf = [&](Value lse, Value logits, Value targets) -> Value {
    auto sum = lse.getDefiningOp<LogSumExpOp>();
    if (!sum || sum.getX() != logits)
      return {};
    OpBuilder builder(op);
    return CrossEntropyOp::create(builder, op->getLoc(), lse.getType(), logits, targets);
  };
  if (auto less = dyn_cast<SubOp>(op)) {
    auto pick = less.getB().getDefiningOp<PickOp>();
    Value nll = pick ? nllOf(less.getA(), pick.getLogits(), pick.getTargets()) : Value();
    if (nll)
      op->getResult(0).replaceAllUsesWith(nll);
    return static_cast<bool>(nll);
  }
  // An entry of x - logsumexp(x).
  auto pick = dyn_cast<PickOp>(op);
  auto less = pick ? pick.getLogits().getDefiningOp<SubOp>() : SubOp();
  Value lse = less ? broadcastAlong(less.getB(), static_cast<int>(typeOf(less.getA()).getRank()) - 1) : Value();
  Value nll = lse ? nllOf(lse, less.getA(), pick.getTargets()) : Value();
  if (!nll)
    return false;
  OpBuilder builder(op);
  op->getResult(0).replaceAllUsesWith(
      ScaleOp::create(builder, op->getLoc(), nll.getType(), nll, builder.getF64FloatAttr(-1)).getResult());
  return true;
}

//===---------------------------------------------------------------------------===//
// Activations
//===---------------------------------------------------------------------------===//

static bool isNear(double a, double b) { return std::abs(a - b) <= 1e-4 * std::abs(b); }

/// `value` as x plus a number, or null.
static Value lessConstant(Value value, double number) {
  if (auto sum = value.getDefiningOp<AddOp>())
    for (auto [x, more] : {std::pair(sum.getA(), sum.getB()), std::pair(sum.getB(), sum.getA())})
      if (constantOf(more) == number)
        return x;
  return {};
}

/// The dims of `value` in their order.
static SmallVector<int> own(Value value) {
  return llvm::to_vector(llvm::seq(0, static_cast<int>(typeOf(value).getRank())));
}

/// Whether `product` is a multiple of x to the power of `count`.
static bool isPower(const ProductForm &product, Value x, size_t count) {
  return !product.summed() && product.terms.size() == count &&
         llvm::all_of(product.terms, [&](const Term &t) { return t.value == x && t.dims == own(x); });
}

/// The x of `value` = sigmoid(x), by the op or as 1 / (1 + e^-x), or null.
static Value sigmoidOf(Value value) {
  if (auto activation = value.getDefiningOp<ActivationOp>())
    return activation.getKind() == ActivationKind::Sigmoid ? activation.getX() : Value();
  auto recip = value.getDefiningOp<RecipOp>();
  Value exp = recip ? lessConstant(recip.getX(), 1) : Value(), exponent = exp ? exponentOf(exp) : Value();
  auto minus = exponent ? exponent.getDefiningOp<ScaleOp>() : ScaleOp();
  return minus && minus.getFactor().convertToDouble() == -1 ? minus.getX() : Value();
}

/// The x of 1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)), or null.
static Value geluGateOf(Value value) {
  Value tanh = lessConstant(value, 1);
  auto activation = tanh ? tanh.getDefiningOp<ActivationOp>() : ActivationOp();
  if (!activation || activation.getKind() != ActivationKind::Tanh)
    return {};
  auto scaled = activation.getX().getDefiningOp<ScaleOp>();
  auto sum = scaled ? scaled.getX().getDefiningOp<AddOp>() : AddOp();
  if (!sum || !isNear(scaled.getFactor().convertToDouble(), 0.7978845608))
    return {};
  for (auto [x, cube] : {std::pair(sum.getA(), sum.getB()), std::pair(sum.getB(), sum.getA())}) {
    ProductForm product = productOf(cube, x);
    if (isNear(product.scale, 0.044715) && isPower(product, x, 3))
      return x;
  }
  return {};
}

bool pc::raiseActivation(Operation *op) {
  if (Value x = isa<RecipOp>(op) ? sigmoidOf(op->getResult(0)) : Value()) {
    OpBuilder builder(op);
    op->getResult(0).replaceAllUsesWith(
        ActivationOp::create(builder, op->getLoc(), x.getType(), ActivationKind::Sigmoid, x).getResult());
    return true;
  }
  if (!isa<EinsumOp, ScaleOp>(op))
    return false;
  for (const Term &gate : productOf(op->getResult(0)).terms) {
    Value silu = sigmoidOf(gate.value), gelu = silu ? Value() : geluGateOf(gate.value), x = silu ? silu : gelu;
    if (!x)
      continue;
    ProductForm product = productOf(op->getResult(0), x); // x may be a product itself
    auto isRead = [&](Value value) {
      return llvm::find_if(product.terms, [&](const Term &term) { return term.value == value && term.dims == own(x); });
    };
    auto of = isRead(x), by = isRead(gate.value);
    if (product.summed() || of == product.terms.end() || by == product.terms.end() || (gelu && product.scale != 0.5))
      continue;
    OpBuilder builder(op);
    auto kind = silu ? ActivationKind::Silu : ActivationKind::GeluTanh;
    of->value = ActivationOp::create(builder, op->getLoc(), x.getType(), kind, x);
    product.terms.erase(by);
    op->getResult(0).replaceAllUsesWith(
        multiply(builder, op->getLoc(), product.terms, own(op->getResult(0)), gelu ? 1 : product.scale));
    return true;
  }
  return false;
}
