//===- ModelAttention.cpp - Attention of a layer ----------------------------------------===//
// Builds projections of Q, K and V, norms of heads, rotary embeddings, addends of scores (ALiBi, T5's buckets), the
// attention op and the output projection. Q is [b, s, kv_heads, group, head_dim]; K and V are [b, s, kv_heads,
// head_dim]. So grouped-query attention needs no repetition. Latent attention is in a separate file.
//===-----------------------------------------------------------------------------===//
#include "ModelBuilder.h"
#include "RelativeBuckets.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pc;

Value ModelBuilder::count(int64_t size, int64_t first) {
  Value indices = IotaOp::create(builder, loc, RankedTensorType::get({size}, builder.getI32Type()), first);
  return CastOp::create(builder, loc, RankedTensorType::get({size}, f32), indices);
}

Value ModelBuilder::alibi() {
  // ALiBi (Press et al., 2022): the slope of head i of n is 2^(-8 i / n) if n is a power of two. Otherwise the heads
  // beyond the largest power of two below n get slopes between those.
  int64_t heads = config.kvHeads, power = int64_t(1) << llvm::Log2_64(heads);
  auto slopes = [&](Value number, double step) {
    Value exponent = scaled(number, -8 * M_LN2 * step / double(power));
    return ExpOp::create(builder, loc, exponent.getType(), exponent);
  };
  Value slope = slopes(count(heads, 1), 1);
  if (power < heads) {
    // (2 (i - power) + 1) / 2 = (i - power) + 1 / 2
    Value number = count(heads, -power);
    Value between = slopes(add(number, like(number, "-> k", {constant(0.5)})), 1);
    auto first = [&](Value x) {
      return MaskPaddingOp::create(builder, loc, x.getType(), x, builder.getI64IntegerAttr(power),
                                   builder.getF64FloatAttr(0.0), Value());
    };
    Value second = SubOp::create(builder, loc, between.getType(), between, first(between));
    slope = add(first(slope), second);
  }
  int64_t entries = 2 * sequence - 1;
  auto result = RankedTensorType::get({heads, config.heads / heads, entries}, f32);
  return EinsumOp::create(builder, loc, result, "k, r -> k g r", ValueRange{slope, count(entries, 1 - sequence)});
}

/// The buckets of all distances are constants, so the addends are rows of a table by constant ids.
Value ModelBuilder::relativeBias() {
  std::string name = (form->attention + "." + form->relativeBias).str();
  in(name);
  Value table = parameter(layerName(name + ".weight"), {"buckets", "kv_heads"}, deviation(config.embed));
  RelativeBuckets buckets(sequence, config.buckets, config.farthest, /*bothWays=*/!form->causal);
  int64_t entries = 2 * sequence - 1;
  Value ids =
      IotaOp::create(builder, loc, RankedTensorType::get({entries}, builder.getI32Type()), Value(), 0,
                     builder.getDenseI64ArrayAttr(buckets.pieces), builder.getDenseI64ArrayAttr(buckets.values));
  Value rows = EmbeddingOp::create(builder, loc, RankedTensorType::get({entries, config.kvHeads}, f32), table, ids,
                                   Value(), IntegerAttr());
  auto result = RankedTensorType::get({config.kvHeads, config.heads / config.kvHeads, entries}, f32);
  return EinsumOp::create(builder, loc, result, "r k -> k g r", ValueRange{rows});
}

Value ModelBuilder::addendsOfScores() {
  if (!form->relativeBias.empty() && !relative)
    relative = relativeBias();
  return form->alibi ? alibi() : relative;
}

/// The layer decides the scale (GPT-2) and the window.
Value ModelBuilder::attention(Value q, Value k, Value v, Value addends, Value sinks, bool causal) {
  double scale = config.scaleByLayer ? config.scale / double(layer + 1) : config.scale;
  Value words = config.attentionDrop ? random() : Value();
  int64_t window = config.windows.empty() ? 0 : config.windows[layer];
  return AttentionOp::create(
             builder, loc, type({"batch", "sequence", "kv_heads", "group", "head_dim"}),
             type({"batch", "kv_heads", "group", "sequence"}), q, k, v, addends, sinks, starts, words, Value(),
             ValueRange(), builder.getF64FloatAttr(scale), causal ? builder.getUnitAttr() : UnitAttr(),
             window ? builder.getI64IntegerAttr(window) : IntegerAttr(),
             config.scoreCap > 0 ? builder.getF64FloatAttr(config.scoreCap) : FloatAttr(), drop(config.attentionDrop))
      .getO();
}

/// Finds the part of the file's tensor that holds queries, keys or values. This depends on how the family stores them.
std::pair<Value, Value> ModelBuilder::projection(StringRef block, Part part, Dims heads) {
  const StringRef names[] = {form->q, form->k, form->v}, suffixes[] = {":q", ":k", ":v"};
  int64_t e = config.embed, queries = config.heads * config.headDim, keys = config.kvHeads * config.headDim;
  // For weights in one tensor: q, k and v follow each other, and `start` and `size` count their rows or columns.
  int64_t start = part == Query ? 0 : part == Key ? queries : queries + keys;
  int64_t size = part == Query ? queries : keys, all = queries + 2 * keys;
  auto count = static_cast<int64_t>(heads.size());
  SmallVector<StringRef> dims(heads);
  dims.insert(form->inputsFirst ? dims.begin() : dims.end(), "embed");
  bool isApart = form->projections == Projections::Apart;
  std::string name = (block + "." + (isApart ? names[part] : form->qkv)).str();
  StringRef suffix = isApart ? "" : suffixes[part];
  in(name + suffix);
  std::string weight = layerName(name + ".weight"), bias = layerName(name + ".bias");
  auto boxOf = [&](ArrayRef<int64_t> shape, ArrayRef<int64_t> from, ArrayRef<int64_t> sizes, ArrayRef<int64_t> view) {
    return box(weight, suffix, dims, config.initStd, 0, shape, from, sizes, view);
  };
  auto biasOf = [&](ArrayRef<int64_t> from, ArrayRef<int64_t> sizes, ArrayRef<int64_t> view) {
    return config.qkvBias ? box(bias, suffix, heads, 0, 0, {all}, from, sizes, view) : Value();
  };
  // q, k and v are separate tensors, or parts of one: its columns, its rows, or its rows head by head.
  switch (form->projections) {
  case Projections::Columns: {
    Value w = boxOf({e, all}, {0, start}, {e, size}, {});
    return {w, biasOf({start}, {size}, {})};
  }
  case Projections::Rows: {
    Value w = boxOf({all, e}, {start, 0}, {size, e}, {});
    return {w, biasOf({start}, {size}, {})};
  }
  case Projections::ByHead: {
    int64_t n = config.heads, d = config.headDim;
    Value w = boxOf({all, e}, {0, part, 0, 0}, {n, 1, d, e}, {n, 3, d, e});
    return {w, biasOf({0, part, 0}, {n, 1, d}, {n, 3, d})};
  }
  case Projections::Apart:
    break;
  }
  SmallVector<int64_t> merged = form->inputsFirst ? SmallVector<int64_t>{1, count} : SmallVector<int64_t>{count, 1};
  Value w = parameter(weight, dims, deviation(part == Query ? e * config.headDim : e), merged);
  return {w, config.qkvBias ? parameter(bias, heads, 0, {count}) : Value()};
}

/// One product, whose result has separate dims of heads.
Value ModelBuilder::project(StringRef block, Value y, Part part, Dims kv) {
  bool q = part == Query;
  SmallVector<StringRef> heads =
      q ? SmallVector<StringRef>{"kv_heads", "group", "head_dim"} : SmallVector<StringRef>{"kv_heads", "head_dim"};
  auto [w, b] = projection(block, part, heads);
  StringRef letters = q ? "k g d" : "k d";
  std::string weight = form->inputsFirst ? ("e " + letters).str() : (letters + " e").str();
  Value p = einsum("b s e, " + weight + " -> b s " + letters.str(), {y, w}, q ? Dims(Q) : kv);
  return b ? bias(p, b, (letters + " -> b s " + letters).str()) : p;
}

Value ModelBuilder::headNorm(Value x, StringRef part, Dims heads, StringRef letters) {
  std::string name = (form->attention + "." + part).str();
  in(name);
  return form->qkNorm == LayerForm::OfAll ? normOfAll(x, layerName(name), heads, letters)
                                          : norm(x, layerName(name), "head_dim");
}

/// Projects, normalizes and rotates q and k, computes attention, and projects back.
Value ModelBuilder::attentionBlock(StringRef block, Value y, Value source) {
  bool crosses = source != y;
  Dims kv = crosses ? Dims(Source) : Dims(KV);
  Value q = project(block, y, Query, kv), k = project(block, source, Key, kv), v = project(block, source, Values, kv);
  if (form->qkNorm != LayerForm::NoNorm) {
    q = headNorm(q, "q_norm", {"kv_heads", "group", "head_dim"}, "k g d");
    k = headNorm(k, "k_norm", {"kv_heads", "head_dim"}, "k d");
  }
  in(block);
  if (!ropes.empty()) {
    auto [cos, sin] = ropes[ropes.size() > 1 && config.sliding[layer]];
    auto rope = [&](Value x) {
      return RopeOp::create(builder, loc, x.getType(), x, cos, sin, UnitAttr(), UnitAttr(), IntegerAttr());
    };
    q = rope(q);
    k = rope(k);
  }
  // Distances between two different sequences have no meaning.
  Value addends = crosses ? Value() : addendsOfScores();
  in(block);
  Value sinks;
  if (!form->sinks.empty())
    sinks = parameter(layerName(block + "." + form->sinks), {"kv_heads", "group"}, config.initStd, {2});
  Value o = attention(q, k, v, addends, sinks, form->causal && !crosses);
  std::string name = (block + "." + form->out).str();
  in(name);
  double std = outputStd(config.heads * config.headDim);
  Value w = form->inputsFirst
                ? parameter(layerName(name + ".weight"), {"kv_heads", "group", "head_dim", "embed"}, std, {3, 1})
                : parameter(layerName(name + ".weight"), {"embed", "kv_heads", "group", "head_dim"}, std, {1, 3});
  Value b = config.outBias ? parameter(layerName(name + ".bias"), {"embed"}, 0) : Value();
  Value z = einsum(form->inputsFirst ? "b s k g d, k g d e -> b s e" : "b s k g d, e k g d -> b s e", {o, w}, X);
  return b ? bias(z, b, "e -> b s e") : z;
}
