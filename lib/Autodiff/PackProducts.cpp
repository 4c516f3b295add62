//===- PackProducts.cpp - One product for q, k and v --------------------------------------===//
// Starts at attention and looks for the products that compute its q, k and v. If they read the same value, their
// weights become one parameter, which has for each key/value head its query heads, its key and its value. So tensor
// parallelism still splits the dim `kv_heads`, and a rank's part is also one product.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_PACKPRODUCTS
#include "pc/Autodiff/Passes.h"

#include "pc/IR/Parts.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace pc;

namespace {

/// x times a weight, plus a bias if there is one.
struct Projection {
  EinsumOp product;
  ParameterOp weight;
  EinsumOp broadcast; ///< the broadcast of the bias, or null
  ParameterOp bias;
  Value result;
};

/// A projection and the ops between it and attention: at most a norm and a rotation.
struct Path {
  Projection from;
  RMSNormOp norm;
  RopeOp rope;
};

/// The product with a weight, and a bias if there is one, that computes `result` and has no other use.
std::optional<Projection> projectionOf(Value result) {
  Projection p;
  p.result = result;
  if (auto sum = result.getDefiningOp<AddOp>()) {
    p.product = sum.getA().getDefiningOp<EinsumOp>();
    p.broadcast = sum.getB().getDefiningOp<EinsumOp>();
    if (!p.product || !p.broadcast || !p.product->hasOneUse() || p.broadcast.getInputs().size() != 1)
      return std::nullopt;
    p.bias = p.broadcast.getInputs()[0].getDefiningOp<ParameterOp>();
    if (!p.bias || !p.bias->hasOneUse())
      return std::nullopt;
  } else {
    p.product = result.getDefiningOp<EinsumOp>();
  }
  if (!p.product || p.product.getInputs().size() != 2)
    return std::nullopt;
  p.weight = p.product.getInputs()[1].getDefiningOp<ParameterOp>();
  return p.weight && p.weight->hasOneUse() ? std::optional(p) : std::nullopt;
}

/// Finds the ops between a projection and attention: a norm, a rotation, or nothing.
std::optional<Path> pathTo(Value value) {
  Path path;
  path.rope = value.getDefiningOp<RopeOp>();
  if (path.rope)
    value = path.rope.getX();
  path.norm = value.getDefiningOp<RMSNormOp>();
  if (path.norm)
    value = path.norm.getX();
  std::optional<Projection> from = projectionOf(value);
  if (!from)
    return std::nullopt;
  path.from = *from;
  return path;
}

SmallVector<StringRef> dimsOf(ParameterOp parameter) {
  return llvm::to_vector(parameter.getDims().getAsValueRange<StringAttr>());
}

/// "b s e, e k g d -> b s k g d" without the factor `left`.
std::string specWithout(EinsumOp op, StringRef left) {
  FactorRule rule = op.getFactorRule();
  std::string text;
  auto add = [&](ArrayRef<int> dims) {
    for (int f : dims)
      if (rule.factors[f].name != left)
        text += rule.factors[f].name + " ";
    text += ",";
  };
  for (ArrayRef<int> dims : rule.operands)
    add(dims);
  text += "->";
  add(rule.results[0]);
  return text;
}

/// Joins names, with the differences in braces: "layers.0.{q,k,v}_proj".
std::string together(ArrayRef<StringRef> names) {
  size_t front = names[0].size(), back = names[0].size();
  for (StringRef name : names) {
    size_t same = 0, most = std::min(name.size(), names[0].size());
    while (same < most && name[same] == names[0][same])
      ++same;
    front = std::min(front, same);
  }
  for (StringRef name : names) {
    size_t same = 0, most = std::min(name.size(), names[0].size()) - front;
    while (same < most && name[name.size() - 1 - same] == names[0][names[0].size() - 1 - same])
      ++same;
    back = std::min(back, same);
  }
  auto middles = llvm::map_to_vector(names, [&](StringRef name) { return name.drop_front(front).drop_back(back); });
  return (names[0].take_front(front) + "{" + llvm::join(middles, ",") + "}" + names[0].take_back(back)).str();
}

/// The pass pc-pack-products. It looks at each attention of the model.
struct PackProducts : pc::impl::PackProductsBase<PackProducts> {
  using PackProductsBase::PackProductsBase;

  void runOnOperation() override {
    if (ranks < 1) {
      getOperation().emitError() << "pc-pack-products: ranks must be positive, got " << int64_t(ranks);
      return signalPassFailure();
    }
    numberParameters();
    SmallVector<AttentionOp> attentions;
    getOperation().walk([&](AttentionOp op) { attentions.push_back(op); });
    for (AttentionOp attention : attentions)
      pack(attention);
  }

  /// Sets keys, which are positions among the imported parameters.
  void numberParameters() {
    int64_t key = 0;
    getOperation().walk([&](ParameterOp parameter) {
      keys[parameter] = key;
      key += numParts(parameter);
    });
  }

  /// q, k and v must come from products of the same value, and v must be neither normalized nor rotated.
  void pack(AttentionOp attention) {
    std::optional<Path> q = pathTo(attention.getQ()), k = pathTo(attention.getK()), v = pathTo(attention.getV());
    if (!q || !k || !v || v->rope || v->norm || attention.getSees())
      return;
    SmallVector<Projection> parts = {q->from, k->from, v->from};
    if (!belongTogether(parts))
      return;
    OpBuilder builder(parts[0].product);
    Value packed = productOf(builder, parts);
    bool rotated = q->rope && k->rope && !q->norm && !k->norm && isAlike(q->rope, k->rope);
    bool plain = !q->rope && !k->rope && !q->norm && !k->norm;
    auto onlyHere = [](Value value) { return value.hasOneUse(); };
    // If nothing else uses q, k and v, attention reads them from the packed product. Otherwise one op splits the
    // product, and also rotates.
    if (plain && attention.isPlain() && !attention.getDropAttr() && onlyHere(attention.getQ()) &&
        onlyHere(attention.getK()) && onlyHere(attention.getV())) {
      builder.setInsertionPoint(attention);
      auto op =
          PackedAttentionOp::create(builder, attention.getLoc(), attention.getO().getType(),
                                    attention.getLse().getType(), packed, attention.getScale(), attention.getCausal());
      attention->replaceAllUsesWith(op->getResults());
      attention.erase();
    } else {
      SmallVector<Value> tables;
      if (rotated)
        tables = {q->rope.getCos(), q->rope.getSin()};
      builder.setInsertionPointAfter(packed.getDefiningOp());
      auto split = SplitQkvOp::create(builder, packed.getLoc(), parts[0].result.getType(), parts[1].result.getType(),
                                      parts[2].result.getType(), packed, tables);
      SmallVector<Value> old = {parts[0].result, parts[1].result, parts[2].result};
      if (rotated)
        old = {q->rope.getResult(), k->rope.getResult(), parts[2].result};
      for (auto [before, after] : llvm::zip_equal(old, split->getResults()))
        before.replaceAllUsesWith(after);
      if (rotated) {
        q->rope.erase();
        k->rope.erase();
      }
    }
    for (Projection &part : parts)
      erase(part);
  }

  /// Returns true if both are rotated by the same tables, and nothing else reads the values before rotation.
  static bool isAlike(RopeOp q, RopeOp k) {
    return q.isPlain() && k.isPlain() && q.getCos() == k.getCos() && q.getSin() == k.getSin() && !q.getInverse() &&
           !k.getInverse() && q.getX().hasOneUse() && k.getX().hasOneUse();
  }

  /// Returns true if q, k and v are projections of one value whose weights and biases differ only in query heads.
  bool belongTogether(ArrayRef<Projection> parts) {
    Projection q = parts[0];
    SmallVector<StringRef> dims = dimsOf(q.weight);
    auto group = llvm::find(dims, "group");
    int64_t at = group - dims.begin();
    if (group == dims.end() || at == 0 || at + 1 >= static_cast<int64_t>(dims.size()) || dims[at - 1] != "kv_heads" ||
        dims[at + 1] != "head_dim" || cast<RankedTensorType>(q.weight.getValue().getType()).getDimSize(at - 1) % ranks)
      return false;
    // q has one more dim than k and v: the query heads of one kv head. Without its letter, the specs must be equal.
    FactorRule rule = q.product.getFactorRule();
    std::string letter = rule.factors[rule.operands[1][at]].name, spec = specWithout(q.product, letter);
    std::string bias = q.bias ? specWithout(q.broadcast, letter) : "";
    auto withoutGroup = [](ParameterOp parameter) {
      SmallVector<StringRef> dims = dimsOf(parameter);
      llvm::erase(dims, "group");
      return dims;
    };
    auto isLike = [&](ParameterOp a, ParameterOp b) {
      return dimsOf(b) == withoutGroup(a) && a.getInit() == b.getInit() && a.getInit().getZeroRow() == -1 &&
             !a.getValid() && !b.getValid() && a.getSource() && b.getSource() && a.getFrozen() == b.getFrozen() &&
             a.getGroupAttr() == b.getGroupAttr();
    };
    for (Projection part : parts.drop_front()) {
      if (part.product.getInputs()[0] != q.product.getInputs()[0] || !part.bias != !q.bias ||
          specWithout(part.product, letter) != spec || !isLike(q.weight, part.weight))
        return false;
      if (q.bias && (specWithout(part.broadcast, letter) != bias || !isLike(q.bias, part.bias)))
        return false;
    }
    // Other parameters keep their positions.
    auto [least, most] = std::minmax({keys[parts[0].weight], keys[parts[1].weight], keys[parts[2].weight]});
    int64_t count = 3;
    if (q.bias) {
      for (Projection part : parts) {
        least = std::min(least, keys[part.bias]);
        most = std::max(most, keys[part.bias]);
      }
      count = 6;
    }
    return most - least + 1 == count && least == keys[q.weight];
  }

  /// Makes the parameter of three parts, before the first one.
  Value join(OpBuilder &builder, ArrayRef<ParameterOp> parameters) {
    ParameterOp q = parameters[0];
    MLIRContext *context = builder.getContext();
    auto type = cast<RankedTensorType>(q.getValue().getType());
    SmallVector<int64_t> shape(type.getShape());
    SmallVector<StringRef> dims = dimsOf(q);
    int64_t along = llvm::find(dims, "group") - dims.begin();
    dims[along] = "qkv";
    SmallVector<Attribute> parts;
    SmallVector<StringRef> names;
    for (ParameterOp part : parameters) {
      names.push_back(part.getName());
      parts.push_back(
          PartAttr::get(context, part.getName(), keys[part], part == q ? shape[along] : 1, *part.getSource()));
    }
    shape[along] += 2;
    auto name = builder.getStringAttr(together(names));
    return ParameterOp::create(builder, NameLoc::get(name), RankedTensorType::get(shape, type.getElementType()), name,
                               builder.getStrArrayAttr(dims), q.getInit(), nullptr, builder.getI64IntegerAttr(along),
                               builder.getArrayAttr(parts), nullptr, nullptr, nullptr, nullptr, q.getFrozenAttr(),
                               q.getGroupAttr());
  }

  /// Makes the product with the joined weights, in which the dim of query heads has two more rows, for key and value.
  Value productOf(OpBuilder &builder, ArrayRef<Projection> parts) {
    Projection q = parts[0];
    OpBuilder leaves(q.weight);
    Value weight = join(leaves, {parts[0].weight, parts[1].weight, parts[2].weight});
    auto type = cast<RankedTensorType>(q.result.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[3] += 2;
    type = RankedTensorType::get(shape, type.getElementType());
    SmallVector<std::string> names =
        llvm::map_to_vector(parts, [](const Projection &part) { return sourceName(part.product); });
    Location loc = NameLoc::get(builder.getStringAttr(together({names[0], names[1], names[2]})));
    Value product =
        EinsumOp::create(builder, loc, type, q.product.getSpec(), ValueRange{q.product.getInputs()[0], weight});
    if (!q.bias)
      return product;
    Value bias = join(leaves, {parts[0].bias, parts[1].bias, parts[2].bias});
    Value broadcast = EinsumOp::create(builder, loc, type, q.broadcast.getSpec(), ValueRange{bias});
    return AddOp::create(builder, loc, type, product, broadcast);
  }

  /// Erases a projection that the packed product replaces.
  static void erase(Projection &part) {
    if (part.bias) {
      part.result.getDefiningOp()->erase();
      part.broadcast.erase();
      part.bias.erase();
    }
    part.product.erase();
    part.weight.erase();
  }

  llvm::DenseMap<Operation *, int64_t> keys;
};
} // namespace
