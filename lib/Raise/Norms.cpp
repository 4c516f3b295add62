//===- Norms.cpp - Raises rms_norm and layer_norm ---------------------------------------------===//
// Begins at a product that has a factor 1 / sqrt(mean of x^2 + eps) and a factor x. A factor that depends only on the
// normalized dim is the scale of the norm. If x is another value minus its mean, the norm is a layer norm. Then an
// added value that depends only on the normalized dim is the shift of the norm.
//===-----------------------------------------------------------------------------===//
#include "Patterns.h"
#include "Product.h"

using namespace mlir;
using namespace pc;

namespace {

/// 1 / sqrt(mean of x^2 along a dim + eps).
struct InverseRms {
  Value x;
  ReducedDim mean;
  double eps;
};

/// A norm among the terms of a product.
struct NormTerms {
  InverseRms rms;
  Term x;
  Value gamma;               ///< null: there is none
  int dim;                   ///< the dim of the product that is normalized
  SmallVector<Term, 4> rest; ///< the other factors
};

} // namespace

/// Returns the y for which `value` is 1 / sqrt(y), or null.
static Value squareOfInverse(Value value) {
  if (auto recip = value.getDefiningOp<RecipOp>())
    if (auto root = recip.getX().getDefiningOp<SqrtOp>())
      return root.getX();
  if (auto root = value.getDefiningOp<SqrtOp>())
    if (auto recip = root.getX().getDefiningOp<RecipOp>())
      return recip.getX();
  return {};
}

/// Returns the value without constant factors.
static Value unscaled(Value value) {
  while (auto scale = value.getDefiningOp<ScaleOp>())
    value = scale.getX();
  return value;
}

/// Recognises 1 / sqrt(c sum(x x) + eps), in which c makes the sum a mean. The addends may be in either order.
static std::optional<InverseRms> inverseRmsOf(Value value) {
  Value square = squareOfInverse(value);
  auto sum = square ? square.getDefiningOp<AddOp>() : AddOp();
  if (!sum)
    return std::nullopt;
  for (auto [mean, more] : inBothOrders(sum)) {
    std::optional<double> eps = constantOf(more);
    auto product = unscaled(mean).getDefiningOp<EinsumOp>();
    if (!eps || !product)
      continue;
    ProductForm squares = productOf(mean, product.getInputs()[0]);
    if (squares.terms.size() != 2 || squares.terms[0].value != squares.terms[1].value ||
        squares.terms[0].dims != squares.terms[1].dims)
      continue;
    const Term &x = squares.terms[0];
    std::optional<ReducedDim> reduced = reducedDim(squares, x);
    if (reduced && std::abs(squares.scale * static_cast<double>(typeOf(x.value).getDimSize(reduced->dim)) - 1) < 1e-6)
      return InverseRms{x.value, *reduced, *eps};
  }
  return std::nullopt;
}

/// Looks for a norm in the product that `value` is, and writes the product to `product`. The factors of the product
/// must contain an inverse root and x. One of the other factors may be the scale.
static std::optional<NormTerms> normIn(Value value, ProductForm &product) {
  std::optional<InverseRms> rms;
  for (const Term &term : productOf(value).terms)
    if (!rms)
      rms = inverseRmsOf(term.value);
  if (!rms)
    return std::nullopt;
  product = productOf(value, rms->x); // x may be a product itself
  if (product.summed())
    return std::nullopt;
  for (auto [i, factor] : llvm::enumerate(product.terms)) {
    if (!squareOfInverse(factor.value))
      continue;
    // x must be the value whose mean square is in the inverse root, along the same dims.
    for (auto [j, x] : llvm::enumerate(product.terms)) {
      bool isAlong = x.value == rms->x && llvm::all_of(llvm::enumerate(rms->mean.rows), [&](auto row) {
                       return x.dims[row.value()] == factor.dims[row.index()];
                     });
      if (!isAlong)
        continue;
      NormTerms norm{*rms, x, Value(), x.dims[rms->mean.dim], {}};
      for (auto [k, term] : llvm::enumerate(product.terms)) {
        if (k == i || k == j)
          continue;
        if (!norm.gamma && term.dims == ArrayRef(norm.dim))
          norm.gamma = term.value;
        else
          norm.rest.push_back(term);
      }
      return norm;
    }
  }
  return std::nullopt;
}

/// Returns the x for which `value` is x minus its mean along `dim`, or null.
static Value uncentered(Value value, int dim) {
  auto less = value.getDefiningOp<SubOp>();
  double scale = 1, wanted = 1.0 / static_cast<double>(typeOf(value).getDimSize(dim));
  Value mean = less ? broadcastAlong(less.getB(), dim, &scale) : Value();
  return mean && isSumOver(mean, less.getA(), dim, wanted / scale) ? less.getA() : Value();
}

namespace {

/// A norm that ends at an op, the product that it is a part of, and the added shift.
struct FoundNorm {
  NormTerms norm;
  ProductForm all;
  Value whole; ///< for a layer norm: x before its mean was subtracted; else null
  Value shift; ///< null: there is none
};

} // namespace

/// Finds a norm at an op. A product alone is an rms norm or a layer norm without shift. A sum may be a layer norm with
/// its shift.
static std::optional<FoundNorm> normAt(Operation *op) {
  auto inProduct = [](Value value) -> std::optional<FoundNorm> {
    ProductForm all;
    std::optional<NormTerms> norm = normIn(value, all);
    return norm ? std::optional(FoundNorm{*norm, all, uncentered(norm->rms.x, norm->rms.mean.dim), Value()})
                : std::nullopt;
  };
  if (isa<EinsumOp, ScaleOp>(op))
    return inProduct(op->getResult(0));
  auto sum = dyn_cast<AddOp>(op);
  if (!sum)
    return std::nullopt;
  for (auto [value, more] : inBothOrders(sum)) {
    std::optional<FoundNorm> found = inProduct(value);
    if (!found || !found->whole || !found->norm.rest.empty() || found->all.scale != 1)
      continue;
    ProductForm along = productOf(more);
    if (along.summed() || along.scale != 1 || along.terms.size() != 1 ||
        along.terms[0].dims != ArrayRef(found->norm.dim))
      continue;
    found->shift = along.terms[0].value;
    return found;
  }
  return std::nullopt;
}

/// Returns true if the only reader of `op` is the rest of the norm: its scale or its shift.
static bool continues(const FoundNorm &found, Operation *op) {
  if (!op->hasOneUse())
    return false;
  std::optional<FoundNorm> more = normAt(*op->user_begin());
  return more && more->norm.rest.size() <= found.norm.rest.size() &&
         ((more->norm.gamma && !found.norm.gamma) || (more->shift && !found.shift));
}

/// If only one op reads the norm, and that op applies the scale or shift, waits for that op. Then the norm and the
/// scale or shift are replaced together.
bool pc::raiseNorm(Operation *op) {
  std::optional<FoundNorm> found = normAt(op);
  if (!found || continues(*found, op))
    return false;
  auto &[norm, all, whole, shift] = *found;
  Value x = norm.rms.x;

  OpBuilder builder(op);
  Location loc = op->getLoc();
  RankedTensorType type = typeOf(x);
  auto columns = RankedTensorType::get(type.getDimSize(norm.rms.mean.dim), type.getElementType());
  auto filled = [&](double number) -> Value {
    auto scalar = RankedTensorType::get({}, type.getElementType());
    Value one = ConstantOp::create(builder, loc, scalar, builder.getF64FloatAttr(number));
    return EinsumOp::create(builder, loc, columns, "-> e", ValueRange(one));
  };
  // A norm without a scale or shift gets ones or zeros, because the ops have both operands.
  Value gamma = norm.gamma ? norm.gamma : filled(1);
  FloatAttr eps = builder.getF64FloatAttr(norm.rms.eps);
  Value last = moveToEnd(builder, loc, whole ? whole : x, norm.rms.mean.dim), y;
  auto rows = RankedTensorType::get(typeOf(last).getShape().drop_back(), type.getElementType());
  if (whole)
    y = LayerNormOp::create(builder, loc, last.getType(), rows, rows, last, gamma, shift ? shift : filled(0), eps)
            .getY();
  else
    y = RMSNormOp::create(builder, loc, last.getType(), rows, last, gamma, eps).getY();
  Term term{y, without(norm.x.dims, norm.rms.mean.dim)};
  term.dims.push_back(norm.dim);
  norm.rest.insert(norm.rest.begin(), term);
  return replaceResult(
      op, multiply(builder, loc, norm.rest, dimsOf(op->getResult(0)), all.scale, typeOf(op->getResult(0)).getShape()));
}
