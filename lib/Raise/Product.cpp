//===- Product.cpp - A value as a product of others -------------------------------------------===//
// Follows einsums, scales and transpositions back to the values that are multiplied, so that patterns compare products
// and not the ops that compute them.
//===------------------------------------------------------------------------------------------===//
#include "Product.h"

#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace pc;

SmallVector<int> pc::dimsOf(Value value) {
  return llvm::to_vector(llvm::seq(0, static_cast<int>(typeOf(value).getRank())));
}

SmallVector<int> pc::without(ArrayRef<int> dims, int at) {
  SmallVector<int> others(dims);
  others.erase(others.begin() + at);
  return others;
}

namespace {

/// Expands a value into the terms of a product.
class Expansion {
public:
  /// `whole` is not expanded. If `opensProducts` is true, einsums of several operands that do not sum are also
  /// expanded.
  Expansion(ProductForm &product, Value whole, bool opensProducts)
      : product(product), whole(whole), opensProducts(opensProducts) {}

  /// Expands `value`, whose dim d is dim dims[d] of the product. If `maySum` is true, an einsum that sums may be
  /// expanded.
  void expand(Value value, ArrayRef<int> dims, bool maySum) {
    if (auto scale = value.getDefiningOp<ScaleOp>(); scale && value != whole) {
      product.scale *= scale.getFactor().convertToDouble();
      return expand(scale.getX(), dims, maySum);
    }
    auto einsum = value.getDefiningOp<EinsumOp>();
    FactorRule rule = einsum ? einsum.getFactorRule() : FactorRule();
    int before = product.dims;
    if (!einsum || value == whole || einsum.getRoutedAttr() || !openFactors(rule, dims, maySum))
      return product.terms.push_back({value, SmallVector<int>(dims)}), void();
    bool sums = product.dims > before;
    if (einsum.getInputs().size() > 1 && !sums && !opensProducts)
      return product.terms.push_back({value, SmallVector<int>(dims)}), void();
    SmallVector<int> places = this->places;
    maySum &= !opensProducts && !sums; // the einsum that sums may have been transposed
    for (auto [operand, factors] : llvm::zip_equal(einsum.getInputs(), rule.operands))
      expand(operand, llvm::map_to_vector(factors, [&](int f) { return places[f]; }), maySum);
  }

private:
  /// Finds the dim of the product for each factor of the rule. Returns false if the einsum sums although it may not, or
  /// has a factor twice in one value.
  bool openFactors(const FactorRule &rule, ArrayRef<int> dims, bool maySum) {
    places.assign(rule.factors.size(), -1);
    for (auto [f, dim] : llvm::zip_equal(rule.results[0], dims)) {
      if (places[f] >= 0)
        return false;
      places[f] = dim;
    }
    int next = product.dims;
    for (ArrayRef<int> factors : rule.operands) {
      llvm::SmallSet<int, 8> seen;
      for (int f : factors) {
        if (!seen.insert(f).second || (places[f] < 0 && !maySum))
          return false;
        if (places[f] < 0)
          places[f] = next++;
      }
    }
    product.dims = next;
    return true;
  }

  ProductForm &product;
  Value whole;
  bool opensProducts;
  SmallVector<int> places; ///< places of the factors of the einsum that was opened last
};

} // namespace

static ProductForm expanded(Value value, Value whole, bool opensProducts) {
  ProductForm product;
  product.rank = product.dims = static_cast<int>(typeOf(value).getRank());
  Expansion(product, whole, opensProducts).expand(value, dimsOf(value), /*maySum=*/true);
  return product;
}

ProductForm pc::productOf(Value value, Value whole) { return expanded(value, whole, /*opensProducts=*/true); }

ProductForm pc::contractionOf(Value value) { return expanded(value, Value(), /*opensProducts=*/false); }

/// Returns the number that every element of a value is, with all scales multiplied.
std::optional<double> pc::constantOf(Value value) {
  ProductForm product = productOf(value);
  auto constant = product.terms.size() == 1 ? product.terms[0].value.getDefiningOp<ConstantOp>() : ConstantOp();
  if (!constant || product.summed())
    return std::nullopt;
  return constant.getNumber().convertToDouble() * product.scale;
}

int pc::countedDim(Value value) {
  ProductForm product = productOf(value);
  auto cast = product.terms.size() == 1 ? product.terms[0].value.getDefiningOp<CastOp>() : CastOp();
  auto iota = cast ? cast.getX().getDefiningOp<IotaOp>() : IotaOp();
  bool counts =
      iota && !iota.getFrom() && !iota.getPieces() && !iota.getOffset() && product.scale == 1 && !product.summed();
  return counts ? product.terms[0].dims[0] : -1;
}

std::optional<ReducedDim> pc::reducedDim(const ProductForm &product, const Term &term) {
  if (product.summed() != 1 || !term.has(product.rank) || static_cast<int>(term.dims.size()) != product.rank + 1)
    return std::nullopt;
  ReducedDim reduced{0, SmallVector<int>(product.rank)};
  for (auto [d, dim] : llvm::enumerate(term.dims))
    (dim == product.rank ? reduced.dim : reduced.rows[dim]) = static_cast<int>(d);
  return reduced;
}

/// Matches the sum of `of` over `dim`, multiplied by `scale`.
bool pc::isSumOver(Value value, Value of, int dim, double scale) {
  ProductForm product = productOf(value, of);
  if (product.terms.size() != 1 || product.terms[0].value != of || std::abs(product.scale / scale - 1) > 1e-6)
    return false;
  std::optional<ReducedDim> reduced = reducedDim(product, product.terms[0]);
  return reduced && reduced->dim == dim && llvm::is_sorted(reduced->rows);
}

Value pc::broadcastAlong(Value value, int dim, double *scale) {
  ProductForm product = productOf(value);
  bool isBroadcast = !product.summed() && product.terms.size() == 1 && (scale || product.scale == 1) &&
                     product.terms[0].dims == without(dimsOf(value), dim);
  if (scale)
    *scale = product.scale;
  return isBroadcast ? product.terms[0].value : Value();
}

Term pc::straightened(Term term) {
  while (auto einsum = term.value.getDefiningOp<EinsumOp>()) {
    FactorRule rule = einsum.getFactorRule();
    if (rule.operands.size() != 1 || rule.operands[0].size() != rule.factors.size() ||
        rule.results[0].size() != rule.factors.size() || einsum.getRoutedAttr())
      break;
    SmallVector<int> places(rule.factors.size());
    for (auto [f, dim] : llvm::zip_equal(rule.results[0], term.dims))
      places[f] = dim;
    term = {einsum.getInputs()[0], llvm::map_to_vector(rule.operands[0], [&](int f) { return places[f]; })};
  }
  return term;
}

/// Writes one einsum of all terms, whose dims are named after their numbers ("i0 i2"). Then writes a scale. Leaves out
/// either if it is not needed.
Value pc::multiply(OpBuilder &builder, Location loc, ArrayRef<Term> terms, ArrayRef<int> result, double scale,
                   ArrayRef<int64_t> shape, IntegerAttr routed) {
  llvm::DenseMap<int, int64_t> sizes;
  SmallVector<Term> straight = llvm::map_to_vector(terms, straightened);
  auto text = [](ArrayRef<int> dims) {
    return llvm::join(llvm::map_range(dims, [](int dim) { return "i" + std::to_string(dim); }), " ");
  };
  for (const Term &term : straight)
    for (auto [dim, size] : llvm::zip_equal(term.dims, typeOf(term.value).getShape()))
      sizes[dim] = size;
  Value product = straight[0].value;
  if (straight.size() > 1 || ArrayRef<int>(straight[0].dims) != result) {
    auto found = llvm::map_to_vector(result, [&](int dim) { return sizes.contains(dim) ? sizes[dim] : 1; });
    auto type = RankedTensorType::get(shape.empty() ? found : shape, typeOf(product).getElementType());
    std::string of = llvm::join(llvm::map_range(straight, [&](const Term &term) { return text(term.dims); }), ", ");
    product = EinsumOp::create(builder, loc, type, builder.getStringAttr(of + " -> " + text(result)),
                               llvm::map_to_vector(straight, [](const Term &term) { return term.value; }), routed);
  }
  return scale == 1 ? product
                    : ScaleOp::create(builder, loc, product.getType(), product, builder.getF64FloatAttr(scale));
}

Value pc::moveToEnd(OpBuilder &builder, Location loc, Value x, int dim) {
  SmallVector<int> result = without(dimsOf(x), dim);
  result.push_back(dim);
  return multiply(builder, loc, Term{x, dimsOf(x)}, result);
}
