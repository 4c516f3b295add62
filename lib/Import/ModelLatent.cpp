//===- ModelLatent.cpp - Attention of latent queries, keys and values -------------------===//
// DeepSeek-V2's multi-head latent attention (arXiv:2405.04434). A head of q and k has a part that is computed from the
// token's latent values, followed by a rotated part, which all heads of k share. Values are narrower and are padded
// with zeros, so that the ordinary attention op can be used.
//===-----------------------------------------------------------------------------===//
#include "ModelBuilder.h"

using namespace mlir;
using namespace pc;

/// The norm of the few numbers from which heads are computed. Its epsilon does not come from the config.
Value ModelBuilder::latentNorm(Value x, const Twine &name, StringRef dim) {
  constexpr double eps = 1e-6; // independent of rms_norm_eps
  in(name);
  auto rows = RankedTensorType::get(cast<RankedTensorType>(x.getType()).getShape().drop_back(), f32);
  Value gamma = parameter(layerName(name + ".weight"), {dim}, 0, {}, 1.0);
  return RMSNormOp::create(builder, loc, x.getType(), rows, x, gamma, builder.getF64FloatAttr(eps)).getY();
}

Value ModelBuilder::rotated(Value x, int64_t first) {
  auto [cos, sin] = ropes[0];
  return RopeOp::create(builder, loc, x.getType(), x, cos, sin, UnitAttr(),
                        config.interleaved ? builder.getUnitAttr() : UnitAttr(),
                        first ? builder.getI64IntegerAttr(first) : IntegerAttr());
}

Value ModelBuilder::columns(Value x, int64_t from, Dims dims) {
  return ColumnsOp::create(builder, loc, type(dims), x, IntegerAttr(), builder.getI64IntegerAttr(from));
}

/// First queries, then the latent values of keys and values, then the rotated part that all heads of k share.
Value ModelBuilder::latentAttention(Value y) {
  std::string block = form->attention.str();
  int64_t e = config.embed, rank = config.keyRank, heads = config.heads;
  double std = config.initStd;
  Value q;
  // Queries come directly from the embedding, or through a separate latent value.
  if (config.queryRank) {
    in(block + ".q_a_proj");
    Value w = parameter(layerName(block + ".q_a_proj.weight"), {"query_rank", "embed"}, std);
    Value latent = einsum("b s e, r e -> b s r", {y, w}, {"batch", "sequence", "query_rank"});
    if (config.qkvBias)
      latent = bias(latent, parameter(layerName(block + ".q_a_proj.bias"), {"query_rank"}, 0), "r -> b s r");
    latent = latentNorm(latent, block + ".q_a_layernorm", "query_rank");
    in(block + ".q_b_proj");
    w = parameter(layerName(block + ".q_b_proj.weight"), {"kv_heads", "group", "head_dim", "query_rank"}, std, {3, 1});
    q = einsum("b s r, k g d r -> b s k g d", {latent, w}, Q);
  } else {
    in(block + ".q_proj");
    Value w = parameter(layerName(block + ".q_proj.weight"), {"kv_heads", "group", "head_dim", "embed"}, std, {3, 1});
    q = einsum("b s e, k g d e -> b s k g d", {y, w}, Q);
  }
  q = rotated(q, config.plainDim);

  // The numbers from which keys and values are computed, and the part of keys that all heads share.
  std::string down = block + ".kv_a_proj_with_mqa";
  auto project = [&](StringRef suffix, StringRef dim, int64_t start) {
    in(down + suffix);
    int64_t size = names[dim], all = rank + config.ropeDim;
    Value w = box(layerName(down + ".weight"), suffix, {dim, "embed"}, std, 0, {all, e}, {start, 0}, {size, e});
    Value x = einsum("b s e, r e -> b s r", {y, w}, {"batch", "sequence", dim});
    if (!config.qkvBias)
      return x;
    return bias(x, box(layerName(down + ".bias"), suffix, {dim}, 0, 0, {all}, {start}, {size}), "r -> b s r");
  };
  Value latent = latentNorm(project(":latent", "key_rank", 0), block + ".kv_a_layernorm", "key_rank");
  Value shared = rotated(project(":rope", "rope_dim", rank), 0);

  std::string up = block + ".kv_b_proj";
  int64_t width = config.plainDim + config.valueDim;
  auto expand = [&](StringRef suffix, StringRef dim, int64_t start) {
    in(up + suffix);
    Value w = box(layerName(up + ".weight"), suffix, {"kv_heads", dim, "key_rank"}, std, 0, {heads * width, rank},
                  {0, start, 0}, {heads, names[dim], rank}, {heads, width, rank});
    return einsum("b s r, k d r -> b s k d", {latent, w}, {"batch", "sequence", "kv_heads", dim});
  };
  Value k = columns(expand(":key", "plain_dim", 0), 0, KV);
  Value v = columns(expand(":value", "value_dim", config.plainDim), 0, KV);
  in(block);
  // A key consists of its head's projection of the latent value and of the rotated part, which all heads share.
  shared = columns(shared, -config.plainDim, {"batch", "sequence", "head_dim"});
  k = add(k, einsum("b s d -> b s k d", {shared}, KV));
  Value o = attention(q, k, v, Value(), Value(), /*causal=*/true);
  o = columns(o, 0, {"batch", "sequence", "kv_heads", "group", "value_dim"});
  std::string out = block + "." + form->out.str();
  in(out);
  Value w = parameter(layerName(out + ".weight"), {"embed", "kv_heads", "group", "value_dim"}, std, {1, 3});
  Value z = einsum("b s k g d, e k g d -> b s e", {o, w}, X);
  return config.outBias ? bias(z, parameter(layerName(out + ".bias"), {"embed"}, 0), "e -> b s e") : z;
}
