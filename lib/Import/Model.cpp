//===- Model.cpp - Builds the model program of a configuration ------------------------===//
// One builder, driven by the form of a family's layers (Family.h). Parameters keep Hugging Face's layout, with
// `kv_heads`, `group` and `head_dim` as separate dims. Einsums name the dims of their operands in that order, so
// nothing is transposed.
//===-----------------------------------------------------------------------------===//
#include "Model.h"
#include "RelativeBuckets.h"
#include "Routing.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "pcrt/description.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace pc;

namespace {

class ModelBuilder {
public:
  ModelBuilder(OpBuilder &builder, const ModelConfig &config, const ImportOptions &options)
      : builder(builder), config(config), form(&config.family->form), prefix(form->prefix), batch(options.batch),
        sequence(options.sequence), targetLength(options.targets.value_or(options.sequence)),
        documents(options.documents), f32(builder.getF32Type()) {
    names = {{"batch", batch},
             {"sequence", sequence},
             {"source_sequence", sequence},
             {"vocab", config.vocab},
             {"position", config.positions + config.firstPosition},
             {"token_types", config.tokenTypes},
             {"buckets", config.buckets},
             {"embed", config.embed},
             {"ffn", config.ffn},
             {"experts", config.experts},
             {"expert_ffn", config.expertFfn},
             {"kv_heads", config.kvHeads},
             {"group", config.heads / config.kvHeads},
             {"head_dim", config.headDim}};
  }

  void build() {
    Value tokens = input(InputKind::Tokens, builder.getI32Type()),
          targets = input(InputKind::Targets, builder.getI32Type());
    if (documents)
      starts = input(InputKind::Starts, builder.getI32Type());
    Value table = tokenTable((form->tokens + ".weight").str());
    Value x;
    if (const LayerForm *decoder = form; config.family->encoder) {
      form = config.family->encoder;
      encoded = stack(table, tokens, config.encoderLayers);
      form = decoder;
      names["sequence"] = sequence = targetLength;
      tokens = input(InputKind::Shifted, builder.getI32Type());
    }
    x = stack(table, tokens, config.layers);
    if (!form->headTransform.empty())
      x = headTransform(x);
    Value head = table;
    if (!config.tied) {
      prefix = "";
      head = parameter((form->head + ".weight").str(), {"vocab", "embed"}, config.initStd);
    }
    at("head");
    if (config.headScale != 1)
      x = scaled(x, config.headScale);
    Value logits = einsum("b s e, v e -> b s v", {x, head}, {"batch", "sequence", "vocab"});
    if (!form->headBias.empty()) {
      prefix = "";
      logits = bias(logits, parameter(form->headBias, {"vocab"}, 0), "v -> b s v");
    }
    if (config.logitCap > 0) {
      logits = scaled(logits, 1 / config.logitCap);
      logits = ActivationOp::create(builder, loc, logits.getType(), ActivationKind::Tanh, logits);
      logits = scaled(logits, config.logitCap);
    }
    OutputOp::create(builder, loc, OutputKind::Logits, "logits", logits, nullptr, nullptr, nullptr);
    at("loss");
    Value nll = CrossEntropyOp::create(builder, loc, type({"batch", "sequence"}), logits, targets);
    Value weights = input(InputKind::LossWeights, f32);
    if (config.balance != 0) // the loss of each token, so that a microbatch counts as much as its targets do
      nll = bias(nll, balance.loss(builder, loc, config.balance, config.expertsPerToken), "-> b s");
    Value loss = einsum("b s, b s ->", {nll, weights}, {});
    OutputOp::create(builder, loc, OutputKind::Loss, "loss", loss, nullptr, nullptr, nullptr);
  }

private:
  using Dims = ArrayRef<StringRef>;

  /// An encoder, or a decoder, or the only stack of layers that there is: from tokens to what is behind the last norm.
  Value stack(Value table, Value tokens, int64_t layers) {
    StringRef name = !config.family->encoder ? "" : form == config.family->encoder ? "encoder." : "decoder.";
    at(name + "embedding");
    Value x = EmbeddingOp::create(builder, loc, type({"batch", "sequence", "embed"}), table, tokens, Value(),
                                  config.padding < 0 ? IntegerAttr() : builder.getI64IntegerAttr(config.padding));
    if (form->scaledTokens)
      x = scaled(x, static_cast<float>(std::sqrt(double(config.embed))));
    if (!form->positions.empty())
      x = add(x, positionEmbedding());
    if (!form->tokenTypes.empty())
      x = add(x, typeEmbedding());
    if (!form->embedNorm.empty())
      x = norm(x, form->embedNorm, "embed");
    x = dropout(x, config.embedDrop);
    for (const Rotation &rope : config.ropes)
      ropes.push_back({ropeTable(TableKind::Cos, rope), ropeTable(TableKind::Sin, rope)});
    relative = Value();
    for (layer = 0; layer < layers; ++layer)
      x = layerOf(x);
    if (config.normBehindSum)
      return x;
    at(name + "final_norm");
    return dropout(norm(x, form->finalNorm, "embed"), config.finalDrop);
  }

  //===-- leaves -------------------------------------------------------------------===//

  SmallVector<int64_t> sizes(Dims dims) {
    SmallVector<int64_t> result;
    for (StringRef dim : dims)
      result.push_back(names.lookup(dim));
    return result;
  }
  RankedTensorType type(Dims dims) { return RankedTensorType::get(sizes(dims), f32); }

  /// One number a token; of documents, by the token that ends them.
  Value input(InputKind kind, Type element) {
    bool isOfTargets = llvm::is_contained({InputKind::Targets, InputKind::LossWeights, InputKind::Shifted}, kind);
    IntegerAttr key;
    if (kind == InputKind::Starts || kind == InputKind::Positions)
      key = builder.getI64IntegerAttr(*documents);
    if (kind == InputKind::Shifted)
      key = builder.getI64IntegerAttr(config.startToken);
    return InputOp::create(builder, loc, RankedTensorType::get({batch, isOfTargets ? targetLength : sequence}, element),
                           kind, builder.getStrArrayAttr({"batch", "sequence"}), nullptr, nullptr, key);
  }
  /// What the next dropout of the model draws by.
  Value random() {
    return InputOp::create(builder, loc, RankedTensorType::get({PCRT_RANDOM_COUNT}, builder.getI32Type()),
                           InputKind::Random, builder.getStrArrayAttr({"random"}), nullptr, nullptr,
                           builder.getI64IntegerAttr(numDropouts++));
  }

  /// A parameter that is a part of the Hugging Face tensor `name` of shape `shape`, or of another one of as many
  /// elements, `view`: `size` elements from `start` on.
  Value box(StringRef name, StringRef suffix, Dims dims, double std, double fill, ArrayRef<int64_t> shape,
            ArrayRef<int64_t> start, ArrayRef<int64_t> size, ArrayRef<int64_t> view = {}) {
    std::string tensor = prefix + name.str();
    MLIRContext *context = builder.getContext();
    bool normal = std > 0;
    auto init = InitAttr::get(context, normal ? InitKind::Normal : InitKind::Fill,
                              builder.getF64FloatAttr(normal ? std : fill), /*zeroRow=*/-1);
    auto full = builder.getStringAttr(tensor + suffix.str());
    ++numParameters;
    return ParameterOp::create(builder, NameLoc::get(full), type(dims), full, builder.getStrArrayAttr(dims), init,
                               SourceAttr::get(context, tensor, shape, start, size, view), nullptr, nullptr, nullptr,
                               nullptr, nullptr, nullptr);
  }

  /// A parameter that is a whole tensor. `merged`: how many of `dims` each dim of the Hugging Face tensor is made of;
  /// one each if empty.
  Value parameter(StringRef name, Dims dims, double std, ArrayRef<int64_t> merged = {}, double fill = 0) {
    SmallVector<int64_t> shape, all = sizes(dims);
    if (merged.empty()) {
      shape = all;
    } else {
      ArrayRef<int64_t> rest = all;
      for (int64_t count : merged) {
        int64_t size = 1;
        for (int64_t n : rest.take_front(count))
          size *= n;
        shape.push_back(size);
        rest = rest.drop_front(count);
      }
    }
    return box(name, "", dims, std, fill, shape, SmallVector<int64_t>(shape.size(), 0), shape);
  }

  /// The weights `name` of this layer's experts, each a tensor of the file, side by side along the dim "experts".
  Value expertsParameter(StringRef name, Dims dims) {
    MLIRContext *context = builder.getContext();
    int64_t along = llvm::find(dims, "experts") - dims.begin();
    SmallVector<int64_t> shape = sizes(dims), start(shape.size() - 1, 0);
    shape.erase(shape.begin() + along);
    auto tensor = [&](const Twine &i) { return prefix + layerName(form->experts + "." + i + "." + name + ".weight"); };
    SmallVector<Attribute> parts;
    for (int64_t expert = 0; expert < config.experts; ++expert) {
      auto source = SourceAttr::get(context, tensor(Twine(expert)), shape, start, shape, {});
      parts.push_back(PartAttr::get(context, source.getTensor(), numParameters++, 1, source));
    }
    auto all = builder.getStringAttr(tensor("*"));
    auto init = InitAttr::get(context, InitKind::Normal, builder.getF64FloatAttr(config.initStd), /*zeroRow=*/-1);
    return ParameterOp::create(builder, NameLoc::get(all), type(dims), all, builder.getStrArrayAttr(dims), init,
                               nullptr, builder.getI64IntegerAttr(along), builder.getArrayAttr(parts), nullptr, nullptr,
                               nullptr, nullptr);
  }

  /// The token embedding, which may also be the head. The padding row is initialized with zeros.
  Value tokenTable(StringRef name) {
    auto op = parameter(name, {"vocab", "embed"}, config.initStd).getDefiningOp<ParameterOp>();
    InitAttr init = op.getInit();
    op.setInitAttr(InitAttr::get(builder.getContext(), init.getKind(), init.getValue(), config.padding));
    return op.getValue();
  }

  Value ropeTable(TableKind kind, const Rotation &rope) {
    auto size = static_cast<int64_t>(rope.frequencies.size());
    return RopeTableOp::create(
        builder, loc, RankedTensorType::get({sequence, size}, f32), TableKindAttr::get(builder.getContext(), kind),
        builder.getDenseF32ArrayAttr(rope.frequencies), builder.getF64FloatAttr(rope.scale), nullptr, nullptr);
  }

  //===-- pieces -------------------------------------------------------------------===//

  void at(const Twine &name) { loc = NameLoc::get(builder.getStringAttr(name)); }
  std::string layerName(const Twine &name) { return (form->layers + Twine(layer) + "." + name).str(); }
  void in(const Twine &name) { at(layerName(name)); }

  Value einsum(StringRef spec, ValueRange inputs, Dims dims) {
    return EinsumOp::create(builder, loc, type(dims), spec, inputs);
  }
  Value like(Value x, StringRef spec, ValueRange inputs) {
    return EinsumOp::create(builder, loc, x.getType(), spec, inputs);
  }
  Value dropout(Value x, int64_t parts) {
    return parts ? DropoutOp::create(builder, loc, x.getType(), x, random(), ValueRange(), drop(parts)) : x;
  }
  DropAttr drop(int64_t parts) { return parts ? DropAttr::get(builder.getContext(), parts) : DropAttr(); }
  Value add(Value a, Value b) { return AddOp::create(builder, loc, a.getType(), a, b); }
  Value scaled(Value x, double factor) {
    return ScaleOp::create(builder, loc, x.getType(), x, builder.getF64FloatAttr(factor));
  }
  Value constant(double number) {
    return ConstantOp::create(builder, loc, RankedTensorType::get({}, f32), builder.getF64FloatAttr(number));
  }

  /// Adds a bias over the trailing dims of x: `spec` broadcasts it.
  Value bias(Value x, Value b, StringRef spec) { return add(x, like(x, spec, {b})); }

  Value norm(Value x, StringRef name, StringRef dim) {
    auto xType = cast<RankedTensorType>(x.getType());
    auto rows = RankedTensorType::get(xType.getShape().drop_back(), f32);
    bool plusOne = form->norm == NormKind::RMSPlusOne;
    double ones = form->stdByWidth ? config.initStd : 1.0;
    Value gamma = parameter((name + ".weight").str(), {dim}, 0, {}, plusOne ? 0.0 : ones);
    if (plusOne)
      gamma = add(gamma, like(gamma, "-> e", {constant(1)}));
    auto eps = builder.getF64FloatAttr(config.normEps);
    if (form->norm == NormKind::Layer) {
      Value beta = parameter((name + ".bias").str(), {dim}, 0);
      return LayerNormOp::create(builder, loc, xType, rows, rows, x, gamma, beta, eps).getY();
    }
    return RMSNormOp::create(builder, loc, xType, rows, x, gamma, eps).getY();
  }
  /// The norm `name` of a layer; x itself if there is none.
  Value layerNorm(Value x, StringRef name) {
    if (name.empty())
      return x;
    in(name);
    return norm(x, layerName(name), "embed");
  }

  /// The RMS norm of all heads of a token together, `dims` behind batch and sequence.
  Value normOfAll(Value x, StringRef name, Dims dims, StringRef letters) {
    Value gamma = parameter((name + ".weight").str(), dims, 0, {static_cast<int64_t>(dims.size())}, 1.0);
    std::string of = ("b s " + letters).str();
    Value squares = einsum(of + ", " + of + " -> b s", {x, x}, {"batch", "sequence"});
    int64_t count = 1;
    for (int64_t size : sizes(dims))
      count *= size;
    Value mean = scaled(squares, 1.0 / double(count));
    Value sum = add(mean, like(mean, "-> b s", {constant(config.normEps)}));
    Value rstd = RecipOp::create(builder, loc, sum.getType(), SqrtOp::create(builder, loc, sum.getType(), sum));
    Value y = like(x, of + ", b s -> " + of, {x, rstd});
    return like(y, of + ", " + letters.str() + " -> " + of, {y, gamma});
  }

  Value positionEmbedding() {
    Value table = parameter((form->positions + ".weight").str(), {"position", "embed"}, config.initStd);
    auto look = [&](Value rows, Value index, RankedTensorType found) -> Value {
      return EmbeddingOp::create(builder, loc, found, rows, index, Value(), IntegerAttr());
    };
    auto rowsOfSequence = [&] { // position by position
      auto positions = RankedTensorType::get({sequence}, builder.getI32Type());
      return look(table, IotaOp::create(builder, loc, positions, config.firstPosition), type({"sequence", "embed"}));
    };
    if (documents) // positions begin at 0, as the rows of what is looked up first
      return look(config.firstPosition ? rowsOfSequence() : table, input(InputKind::Positions, builder.getI32Type()),
                  type(X));
    Value rows = rowsOfSequence();
    return einsum("s e -> b s e", {rows}, {"batch", "sequence", "embed"});
  }

  /// All tokens are of type 0.
  Value typeEmbedding() {
    Value table = parameter((form->tokenTypes + ".weight").str(), {"token_types", "embed"}, config.initStd);
    Value zero = IotaOp::create(builder, loc, RankedTensorType::get({1}, builder.getI32Type()), 0);
    Value row = EmbeddingOp::create(builder, loc, RankedTensorType::get({1, config.embed}, f32), table, zero, Value(),
                                    IntegerAttr());
    return einsum("o e -> b s e", {row}, X);
  }

  /// What stands between the layers and the head.
  Value headTransform(Value x) {
    prefix = "";
    std::string dense = (form->headTransform + ".dense").str();
    at(dense);
    Value w = parameter(dense + ".weight", {"embed", "embed"}, config.initStd);
    Value y = einsum("b s e, f e -> b s f", {x, w}, X);
    y = activate(bias(y, parameter(dense + ".bias", {"embed"}, 0), "f -> b s f"));
    at(form->headTransform + ".LayerNorm");
    return norm(y, (form->headTransform + ".LayerNorm").str(), "embed");
  }

  /// 0, 1, 2, ... from `first` on, as numbers.
  Value count(int64_t size, int64_t first) {
    Value indices = IotaOp::create(builder, loc, RankedTensorType::get({size}, builder.getI32Type()), first);
    return CastOp::create(builder, loc, RankedTensorType::get({size}, f32), indices);
  }

  /// Attention with linear biases: slope * (t - s), [kv_heads, group, 2 sequence - 1]. Of n heads, a power of two, head
  /// i has the slope 2^(-8 (i + 1) / n); heads behind the largest power of two have those of twice as many between
  /// (O. Press et al., "Train short, test long", 2021).
  Value alibi() {
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

  /// Numbers of each head by the bucket that the distance of a key is in, [kv_heads, group, 2 sequence - 1]. All layers
  /// of a stack have those of its first one.
  Value relativeBias() {
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

  /// What is added to scores by distance, or nothing.
  Value addendsOfScores() {
    if (!form->relativeBias.empty() && !relative)
      relative = relativeBias();
    return form->alibi ? alibi() : relative;
  }

  /// `addends` may be null. Of what an encoder has made all keys are seen.
  Value attention(Value q, Value k, Value v, Value addends, bool causal) {
    double scale = config.scaleByLayer ? config.scale / double(layer + 1) : config.scale;
    Value words = config.attentionDrop ? random() : Value();
    int64_t window = config.windows.empty() ? 0 : config.windows[layer];
    return AttentionOp::create(
               builder, loc, type({"batch", "sequence", "kv_heads", "group", "head_dim"}),
               type({"batch", "kv_heads", "group", "sequence"}), q, k, v, addends, starts, words, Value(), ValueRange(),
               builder.getF64FloatAttr(scale), causal ? builder.getUnitAttr() : UnitAttr(),
               window ? builder.getI64IntegerAttr(window) : IntegerAttr(),
               config.scoreCap > 0 ? builder.getF64FloatAttr(config.scoreCap) : FloatAttr(), drop(config.attentionDrop))
        .getO();
  }

  Value activate(Value x) { return ActivationOp::create(builder, loc, x.getType(), config.activation, x); }

  static constexpr StringRef Q[] = {"batch", "sequence", "kv_heads", "group", "head_dim"};
  static constexpr StringRef KV[] = {"batch", "sequence", "kv_heads", "head_dim"};
  static constexpr StringRef Source[] = {"batch", "source_sequence", "kv_heads", "head_dim"};
  static constexpr StringRef X[] = {"batch", "sequence", "embed"};
  static constexpr StringRef F[] = {"batch", "sequence", "ffn"};

  //===-- a layer ------------------------------------------------------------------===//

  enum Part { Query, Key, Values };

  /// The deviation that a weight starts with, of which `inputs` numbers make one result.
  double deviation(int64_t inputs) const {
    return form->stdByWidth ? config.initStd / std::sqrt(double(inputs)) : config.initStd;
  }

  /// The weight and the bias (null if there is none) of queries, keys or values of attention `block`. Sets the
  /// location.
  std::pair<Value, Value> projection(StringRef block, Part part, Dims heads) {
    const StringRef names[] = {form->q, form->k, form->v}, suffixes[] = {":q", ":k", ":v"};
    int64_t e = config.embed, queries = config.heads * config.headDim, keys = config.kvHeads * config.headDim;
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

  /// `kv`: the dims of keys and values.
  Value project(StringRef block, Value y, Part part, Dims kv) {
    bool q = part == Query;
    SmallVector<StringRef> heads =
        q ? SmallVector<StringRef>{"kv_heads", "group", "head_dim"} : SmallVector<StringRef>{"kv_heads", "head_dim"};
    auto [w, b] = projection(block, part, heads);
    StringRef letters = q ? "k g d" : "k d";
    std::string weight = form->inputsFirst ? ("e " + letters).str() : (letters + " e").str();
    Value p = einsum("b s e, " + weight + " -> b s " + letters.str(), {y, w}, q ? Dims(Q) : kv);
    return b ? bias(p, b, (letters + " -> b s " + letters).str()) : p;
  }

  Value headNorm(Value x, StringRef part, Dims heads, StringRef letters) {
    std::string name = (form->attention + "." + part).str();
    in(name);
    return form->qkNorm == LayerForm::OfAll ? normOfAll(x, layerName(name), heads, letters)
                                            : norm(x, layerName(name), "head_dim");
  }

  /// Of weights in front of residual sums.
  double outputStd(int64_t inputs) const {
    return form->smallOutputs ? config.initStd / std::sqrt(2.0 * config.layers) : deviation(inputs);
  }

  /// Attention `block` of y to what is in `source`: to y itself, or to what the encoder has made.
  Value attentionBlock(StringRef block, Value y, Value source) {
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
      auto rope = [&](Value x) { return RopeOp::create(builder, loc, x.getType(), x, cos, sin, UnitAttr()); };
      q = rope(q);
      k = rope(k);
    }
    Value addends = crosses ? Value() : addendsOfScores();
    in(block);
    Value o = attention(q, k, v, addends, form->causal && !crosses);
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

  /// The linear layer `name` between "embed" and "ffn"; `part`: 0 and 1 are the halves of the rows of `gateUp`.
  Value linear(Value x, StringRef name, bool down, int64_t part) {
    bool isHalf = !form->gateUp.empty() && !down;
    StringRef from = down ? "ffn" : "embed", to = down ? "embed" : "ffn", suffix = part ? ":up" : ":gate";
    SmallVector<StringRef> dims =
        form->inputsFirst ? SmallVector<StringRef>{from, to} : SmallVector<StringRef>{to, from};
    int64_t e = config.embed, f = config.ffn;
    double std = down ? outputStd(f) : deviation(e);
    in(isHalf ? (form->gateUp + suffix).str() : name.str());
    Value w = isHalf ? box(layerName(form->gateUp + ".weight"), suffix, dims, std, 0, {2 * f, e}, {part * f, 0}, {f, e})
                     : parameter(layerName(name + ".weight"), dims, std);
    Value b = config.mlpBias ? parameter(layerName(name + ".bias"), {to}, 0) : Value();
    StringRef x1 = down ? "f" : "e", y1 = down ? "e" : "f";
    std::string weight = form->inputsFirst ? (x1 + " " + y1).str() : (y1 + " " + x1).str();
    Value p = einsum(("b s " + x1 + ", " + weight + " -> b s " + y1).str(), {x, w}, down ? Dims(X) : Dims(F));
    return b ? bias(p, b, (y1 + " -> b s " + y1).str()) : p;
  }

  Value mlpBlock(Value y) {
    if (form->gate.empty())
      return linear(dropout(activate(linear(y, form->up, false, 0)), config.ffnDrop), form->down, true, 0);
    Value gate = linear(y, form->gate, false, 0), up = linear(y, form->up, false, 1);
    in(form->mlp);
    Value h = einsum("b s f, b s f -> b s f", {activate(gate), up}, F);
    return linear(dropout(h, config.ffnDrop), form->down, true, 0);
  }

  /// Every token goes through all experts; of those that it takes no part of the weight is 0.
  Value expertsBlock(Value y) {
    in(form->router);
    Value w = parameter(layerName(form->router + ".weight"), {"experts", "embed"}, config.initStd);
    Value logits = einsum("b s e, n e -> b s n", {y, w}, {"batch", "sequence", "experts"});
    Routing routing = route(builder, loc, logits, config.expertsPerToken, config.normalizesExperts);
    if (config.balance != 0)
      balance.add(builder, loc, routing);
    auto into = [&](StringRef name) {
      in(form->experts + "." + name);
      Value weights = expertsParameter(name, {"experts", "expert_ffn", "embed"});
      return einsum("b s e, n f e -> b s n f", {y, weights}, {"batch", "sequence", "experts", "expert_ffn"});
    };
    Value gate = into(form->expertGate), up = into(form->expertUp);
    in(form->experts);
    Value h = like(up, "b s n f, b s n f, b s n -> b s n f", {activate(gate), up, routing.weights});
    in(form->experts + "." + form->expertDown);
    Value down = expertsParameter(form->expertDown, {"embed", "experts", "expert_ffn"});
    return einsum("b s n f, e n f -> b s e", {h, down}, X);
  }

  Value layerOf(Value x) {
    bool first = !config.normBehindSum;
    auto before = [&](Value value, StringRef name) { return first ? layerNorm(value, name) : value; };
    auto behind = [&](Value value, StringRef name) { return first ? value : layerNorm(value, name); };
    Value y = before(x, form->beforeAttention),
          z = layerNorm(attentionBlock(form->attention, y, y), form->behindAttention);
    z = dropout(z, config.residualDrop);
    if (config.parallel) {
      Value m = dropout(mlpBlock(layerNorm(x, form->beforeMlp)), config.residualDrop);
      return add(add(m, z), x);
    }
    x = behind(add(x, z), form->beforeAttention);
    if (encoded)
      x = add(x, dropout(attentionBlock(form->cross, layerNorm(x, form->beforeCross), encoded), config.residualDrop));
    y = before(x, form->beforeMlp);
    z = layerNorm(config.experts && config.hasExperts[layer] ? expertsBlock(y) : mlpBlock(y), form->behindMlp);
    return behind(add(x, dropout(z, config.residualDrop)), form->beforeMlp);
  }

  OpBuilder &builder;
  const ModelConfig &config;
  const LayerForm *form; ///< of the stack that is being built
  std::string prefix;
  int64_t batch, sequence, targetLength, layer = 0, numDropouts = 0;
  std::optional<int64_t> documents; ///< the token that ends them
  int64_t numParameters = 0;        ///< so far, each expert's by itself
  LoadBalance balance;              ///< of experts, if there is a loss of it
  Value starts;                     ///< where they begin
  Value encoded;                    ///< what the encoder has made
  Value relative;                   ///< what layers add to scores by distance
  Type f32;
  llvm::StringMap<int64_t> names;
  Location loc = NameLoc::get(builder.getStringAttr("model"));
  SmallVector<std::pair<Value, Value>, 2> ropes; ///< cos and sin
};

} // namespace

OwningOpRef<ModuleOp> pc::buildModel(MLIRContext *context, const ModelConfig &config, const ImportOptions &options) {
  context->loadDialect<PCDialect, func::FuncDialect>();
  OpBuilder builder(context);
  Location loc = NameLoc::get(builder.getStringAttr(config.type));
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  builder.setInsertionPointToEnd(module->getBody());
  ProgramOp::create(builder, loc, config.type, options.batch, options.sequence, config.vocab, config.text,
                    builder.getStringAttr(config.means), /*weights=*/nullptr,
                    /*masked=*/!config.family->form.causal || config.family->encoder,
                    options.targets ? builder.getI64IntegerAttr(*options.targets) : nullptr, /*zigzag=*/nullptr);
  auto function = func::FuncOp::create(builder, loc, "model", builder.getFunctionType({}, {}));
  builder.setInsertionPointToStart(function.addEntryBlock());
  ModelBuilder(builder, config, options).build();
  func::ReturnOp::create(builder, loc);
  return module;
}
