//===- Attention.cpp - Raises attention -------------------------------------------------------===//
// Begins at a product of softmax(scores) with v that sums over the keys. Scores are a product of q and k that sums over
// their width. Of the other dims, those that q, k and v share are the batch and the heads, and those that only q has
// are the queries and their group. A missing dim gets size 1. The assignment of shared dims to batch and heads does not
// change what attention computes. The assignment of q's own dims does not change it either, unless there is a causal
// mask, which determines the queries.
//===-----------------------------------------------------------------------------===//
#include "Patterns.h"
#include "Product.h"

using namespace mlir;
using namespace pc;

namespace {

/// A score of this or less belongs to a key that the query does not see.
constexpr double unseen = -1e4;

/// Scores without their causal mask, and the dims of that mask.
struct Scores {
  Value value;
  int queries = -1, keys = -1; ///< dims of a causal mask, or -1
};

/// The pieces of an attention, along the dims of one product. The dims are numbered as follows: those of the result
/// first, then the keys and the width.
struct Pieces {
  Term q, k, v;
  double scale;
  SmallVector<int> shared, own; ///< `shared`: dims of q, k and v; `own`: dims that only q has, the queries first
  int keys, width, out;         ///< `out`: the dim of the result along v's width
  bool causal;
};

} // namespace

/// Recognises select(key <= query, scores, low number) and the inverted form select(query < key, low number, scores).
/// If `value` has no such mask, returns `value` itself.
static Scores withoutMask(Value value) {
  auto select = value.getDefiningOp<SelectOp>();
  if (!select || select.getKind() == ComparisonKind::Equal)
    return {value};
  int x = countedDim(select.getX()), y = countedDim(select.getY());
  // key <= query: seen; query < key: unseen
  bool isSeen = select.getKind() == ComparisonKind::LessEqual;
  std::optional<double> other = constantOf(isSeen ? select.getB() : select.getA());
  if (x < 0 || y < 0 || x == y || !other || *other > unseen)
    return {value};
  return {isSeen ? select.getA() : select.getB(), isSeen ? y : x, isSeen ? x : y};
}

/// Matches from the outside in: the product with v, the softmax, the mask, and the product of q and k. Every dim of
/// these must have one of the roles in `Pieces`; otherwise they are no attention.
static std::optional<Pieces> piecesOf(Value result) {
  ProductForm out = contractionOf(result);
  if (out.summed() != 1 || out.terms.size() != 2 || out.scale != 1)
    return std::nullopt;
  bool isSecond = out.terms[1].value.getDefiningOp<SoftmaxOp>() != nullptr;
  const Term &weights = out.terms[isSecond], &v = out.terms[!isSecond];
  auto softmax = weights.value.getDefiningOp<SoftmaxOp>();
  if (!softmax || weights.dims.back() != out.rank || !softmax->hasOneUse())
    return std::nullopt;
  Scores scores = withoutMask(softmax.getX());
  ProductForm product = contractionOf(scores.value);
  if (product.summed() != 1 || product.terms.size() != 2)
    return std::nullopt;

  // The dims of the scores are those of the softmax. The dim that they sum over gets a new number.
  auto along = [&](const Term &term) {
    return Term{term.value, llvm::map_to_vector(term.dims, [&](int dim) {
                  return dim < product.rank ? weights.dims[dim] : out.rank + 1;
                })};
  };
  Pieces p;
  p.keys = out.rank, p.width = out.rank + 1, p.scale = product.scale, p.v = v;
  bool isFirst = along(product.terms[0]).has(p.keys);
  p.k = along(product.terms[!isFirst]), p.q = along(product.terms[isFirst]);
  p.causal = scores.queries >= 0;
  if (!p.q.has(p.width) || !p.k.has(p.width) || p.q.has(p.keys) || !p.v.has(p.keys) ||
      (p.causal && weights.dims[scores.keys] != p.keys))
    return std::nullopt;

  // Each dim of v, k and q gets its role. `shared` are dims of all three, such as batch and key heads; `own` are dims
  // of q only, such as positions and query heads of a group.
  int ofV = -1;
  for (int dim : p.v.dims)
    if (dim != p.keys && !p.k.has(dim)) {
      if (ofV >= 0 || p.q.has(dim))
        return std::nullopt;
      ofV = dim;
    }
  for (int dim : p.k.dims)
    if (dim != p.keys && dim != p.width) {
      if (!p.q.has(dim) || !p.v.has(dim))
        return std::nullopt;
      p.shared.push_back(dim);
    }
  for (int dim : p.q.dims)
    if (dim != p.width && !p.k.has(dim))
      p.own.push_back(dim);
  // With a causal mask, the positions of queries come first in `own`.
  if (p.causal) {
    int queries = weights.dims[scores.queries];
    if (!llvm::is_contained(p.own, queries))
      return std::nullopt;
    llvm::erase(p.own, queries);
    p.own.insert(p.own.begin(), queries);
  }
  p.out = ofV;
  auto sizeOf = [](const Term &term, int dim) {
    return typeOf(term.value).getDimSize(llvm::find(term.dims, dim) - term.dims.begin());
  };
  bool fits = ofV >= 0 && !p.own.empty() && p.own.size() <= 2 && p.shared.size() <= 2 &&
              sizeOf(p.v, ofV) == sizeOf(p.q, p.width) && (!p.causal || sizeOf(p.q, p.own[0]) == sizeOf(p.k, p.keys)) &&
              static_cast<int>(p.own.size() + p.shared.size()) + 1 == out.rank;
  return fits ? std::optional(p) : std::nullopt;
}

/// Brings q, k and v into the order of dims that pc.attention has, and brings the result back into the original order.
bool pc::raiseAttention(Operation *op) {
  std::optional<Pieces> pieces = isa<EinsumOp>(op) ? piecesOf(op->getResult(0)) : std::nullopt;
  if (!pieces)
    return false;
  Pieces &p = *pieces;
  OpBuilder builder(op);
  Location loc = op->getLoc();
  // Dims of attention that these pieces do not have get new numbers, and size 1.
  int next = p.width + 1;
  auto dimOf = [&](ArrayRef<int> dims, size_t i) { return i < dims.size() ? dims[i] : next++; };
  int batch = dimOf(p.shared, 0), heads = dimOf(p.shared, 1), queries = p.own[0], group = dimOf(p.own, 1);
  Value q = multiply(builder, loc, p.q, {batch, queries, heads, group, p.width});
  Value k = multiply(builder, loc, p.k, {batch, p.keys, heads, p.width});
  Value v = multiply(builder, loc, p.v, {batch, p.keys, heads, p.out});
  ArrayRef<int64_t> sizes = typeOf(q).getShape();
  auto lse = RankedTensorType::get({sizes[0], sizes[2], sizes[3], sizes[1]}, typeOf(q).getElementType());
  auto attention =
      AttentionOp::create(builder, loc, q.getType(), lse, q, k, v, /*bias=*/Value(), /*sinks=*/Value(),
                          /*starts=*/Value(), /*random=*/Value(), /*sees=*/Value(), /*offsets=*/ValueRange(),
                          builder.getF64FloatAttr(p.scale), p.causal ? builder.getUnitAttr() : UnitAttr(),
                          /*window=*/nullptr, /*softcap=*/nullptr, /*drop=*/nullptr);
  Term o{attention.getO(), {batch, queries, heads, group, p.out}};
  return replaceResult(op, multiply(builder, loc, o, dimsOf(op->getResult(0))));
}
