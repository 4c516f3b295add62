//===- DecomposeNorms.cpp - Norms over a dim that will be split -> primitives -------------------===//
// Sums over the normalized dim become einsums, whose results are partial if the dim is split. The pass works on the
// step program, before placement: erasing the placements gives the result of this pass again.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_DECOMPOSENORMS
#include "pc/Tactics/Passes.h"

#include "mlir/IR/Builders.h"
#include "pc/Shard/PlacementGraph.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;

namespace {

/// Builds primitives before a norm of x: [r.., e], whose rows have length e.
class Norm {
public:
  /// The last dim is normalized; all dims before it are rows.
  Norm(Operation *op, Value x) : op(op), builder(op), full(cast<RankedTensorType>(x.getType())) {
    for (int64_t d = 0; d + 1 < full.getRank(); ++d)
      r += "r" + std::to_string(d) + " ";
    rows = RankedTensorType::get(full.getShape().drop_back(), full.getElementType());
    columns = RankedTensorType::get(full.getShape().take_back(), full.getElementType());
    scale = 1.0 / static_cast<double>(full.getShape().back());
  }

  // x, y: [r.., e]; s: [r..]; g: [e]
  Value times(Value x, Value y) { return einsum(full, r + "e, " + r + "e -> " + r + "e", {x, y}); }
  Value timesRows(Value x, Value s) { return einsum(full, r + "e, " + r + "-> " + r + "e", {x, s}); }
  Value timesColumns(Value x, Value g) { return einsum(full, r + "e, e -> " + r + "e", {x, g}); }
  Value timesRowRow(Value s, Value t) { return einsum(rows, r + ", " + r + "-> " + r, {s, t}); }
  Value overRows(Value s) { return einsum(full, r + "-> " + r + "e", {s}); }
  Value overColumns(Value g) { return einsum(full, "e -> " + r + "e", {g}); }
  Value mean(Value x) { return scaled(einsum(rows, r + "e -> " + r, {x})); }
  Value meanOfProduct(Value x, Value y) { return scaled(einsum(rows, r + "e, " + r + "e -> " + r, {x, y})); }
  Value sumOfProduct(Value x, Value y) { return einsum(columns, r + "e, " + r + "e -> e", {x, y}); }
  Value sum(Value x) { return einsum(columns, r + "e -> e", {x}); }
  Value add(Value a, Value b) { return AddOp::create(builder, op->getLoc(), a.getType(), a, b); }
  Value sub(Value a, Value b) { return SubOp::create(builder, op->getLoc(), a.getType(), a, b); }
  /// 1 / sqrt(s + eps)
  Value reciprocalRoot(Value s, FloatAttr eps) {
    auto scalar = RankedTensorType::get({}, full.getElementType());
    Value constant = ConstantOp::create(builder, op->getLoc(), scalar, eps);
    Value root = SqrtOp::create(builder, op->getLoc(), rows, add(s, einsum(rows, "-> " + r, {constant})));
    return RecipOp::create(builder, op->getLoc(), rows, root);
  }

private:
  Value einsum(RankedTensorType type, const std::string &spec, ValueRange operands) {
    return EinsumOp::create(builder, op->getLoc(), type, spec, operands);
  }
  Value scaled(Value s) {
    return ScaleOp::create(builder, op->getLoc(), s.getType(), s, builder.getF64FloatAttr(scale));
  }

  Operation *op;
  OpBuilder builder;
  RankedTensorType full, rows, columns;
  std::string r;
  double scale;
};

/// y = gamma x / rms(x).
void decompose(RMSNormOp op) {
  Norm n(op, op.getX());
  Value rstd = n.reciprocalRoot(n.meanOfProduct(op.getX(), op.getX()), op.getEpsAttr());
  op.getRstd().replaceAllUsesWith(rstd);
  op.getY().replaceAllUsesWith(n.timesColumns(n.timesRows(op.getX(), rstd), op.getGamma()));
}

/// y = gamma (x - mean) / std + beta.
void decompose(LayerNormOp op) {
  Norm n(op, op.getX());
  Value mean = n.mean(op.getX());
  Value centered = n.sub(op.getX(), n.overRows(mean));
  Value rstd = n.reciprocalRoot(n.meanOfProduct(centered, centered), op.getEpsAttr());
  op.getMean().replaceAllUsesWith(mean);
  op.getRstd().replaceAllUsesWith(rstd);
  Value scaled = n.timesColumns(n.timesRows(centered, rstd), op.getGamma());
  op.getY().replaceAllUsesWith(n.add(scaled, n.overColumns(op.getBeta())));
}

/// With h = x * rstd (layer norm: (x - mean) * rstd) and g = dy * gamma: dx = (g - h mean(g h) [- mean(g)]) * rstd.
void decompose(RMSNormGradOp op) {
  Norm n(op, op.getX());
  Value h = n.timesRows(op.getX(), op.getRstd()), g = n.timesColumns(op.getDy(), op.getGamma());
  op.getDgamma().replaceAllUsesWith(n.sumOfProduct(op.getDy(), h));
  op.getDx().replaceAllUsesWith(n.timesRows(n.sub(g, n.timesRows(h, n.meanOfProduct(g, h))), op.getRstd()));
}

/// With h the normed x and g = gamma dy: dx = (g - mean(g) - h mean(g h)) / std.
void decompose(LayerNormGradOp op) {
  Norm n(op, op.getX());
  Value h = n.timesRows(n.sub(op.getX(), n.overRows(op.getMean())), op.getRstd());
  Value g = n.timesColumns(op.getDy(), op.getGamma());
  op.getDbeta().replaceAllUsesWith(n.sum(op.getDy()));
  op.getDgamma().replaceAllUsesWith(n.sumOfProduct(op.getDy(), h));
  Value centered = n.sub(g, n.overRows(n.mean(g)));
  op.getDx().replaceAllUsesWith(n.timesRows(n.sub(centered, n.timesRows(h, n.meanOfProduct(g, h))), op.getRstd()));
}

/// The pass pc-decompose-norms. It rewrites the norms over the dim of its option.
struct DecomposeNorms : pc::impl::DecomposeNormsBase<DecomposeNorms> {
  using DecomposeNormsBase::DecomposeNormsBase;

  /// Replaces norms over the given dim by their parts, so that the dim can be split.
  void runOnOperation() override {
    if (meshOf(getOperation())) {
      getOperation().emitError() << "pc-decompose-norms: this pass needs a step program; run it before pc-set-mesh";
      return signalPassFailure();
    }
    SmallVector<Operation *> norms;
    getOperation().walk([&](Operation *op) {
      if (Value gamma = normGamma(op); gamma && normalizes(gamma, dim))
        norms.push_back(op);
    });
    for (Operation *op : norms) {
      llvm::TypeSwitch<Operation *>(op).Case<RMSNormOp, LayerNormOp, RMSNormGradOp, LayerNormGradOp>(
          [](auto norm) { decompose(norm); });
      op->erase();
    }
  }
};

} // namespace

Value pc::normGamma(Operation *op) {
  return llvm::TypeSwitch<Operation *, Value>(op)
      .Case<RMSNormOp, LayerNormOp, RMSNormGradOp, LayerNormGradOp>([](auto norm) { return norm.getGamma(); })
      .Default(Value());
}

bool pc::normalizes(Value gamma, StringRef dim) {
  ArrayAttr dims = leafDims(source(gamma).getDefiningOp());
  return dims && dims.size() == 1 && mlir::cast<StringAttr>(dims[0]).getValue() == dim;
}
