//===- Model.cpp - Builds the model program of a configuration ------------------------===//
// One builder for GPT-2 and the Llama family. Parameters keep Hugging Face's layout, with `kv_heads`, `group` and
// `head_dim` as separate dims. Einsums name the dims of their operands in that order, so nothing is transposed.
//===-----------------------------------------------------------------------------===//
#include "Model.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "pcrt/description.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/Twine.h"
#include <cmath>

using namespace mlir;
using namespace pc;

namespace {

class ModelBuilder {
public:
  ModelBuilder(OpBuilder &builder, const ModelConfig &config, const ImportOptions &options)
      : builder(builder), config(config), batch(options.batch), sequence(options.sequence), f32(builder.getF32Type()) {
    names = {{"batch", batch},
             {"sequence", sequence},
             {"vocab", config.vocab},
             {"position", config.positions},
             {"embed", config.embed},
             {"ffn", config.ffn},
             {"kv_heads", config.kvHeads},
             {"group", config.heads / config.kvHeads},
             {"head_dim", config.headDim}};
  }

  void build() {
    Value tokens = input(InputKind::Tokens), targets = input(InputKind::Targets);
    bool gpt2 = config.type == "gpt2";
    prefix = gpt2 ? "transformer." : "model.";
    Value table = tokenTable(gpt2 ? "wte.weight" : "embed_tokens.weight");
    at("embedding");
    Value x = EmbeddingOp::create(builder, loc, type({"batch", "sequence", "embed"}), table, tokens, Value(),
                                  config.padding < 0 ? IntegerAttr() : builder.getI64IntegerAttr(config.padding));
    if (gpt2)
      x = dropout(add(x, positionEmbedding()), config.embedDrop);
    else
      ropeTables();
    for (layer = 0; layer < config.layers; ++layer)
      x = gpt2 ? gpt2Layer(x) : llamaLayer(x);
    at("final_norm");
    x = norm(x, gpt2 ? "ln_f" : "norm", "embed");
    Value head = table;
    if (!config.tied) {
      prefix = "";
      head = parameter("lm_head.weight", {"vocab", "embed"}, config.initStd);
    }
    at("head");
    Value logits = einsum("b s e, v e -> b s v", {x, head}, {"batch", "sequence", "vocab"});
    OutputOp::create(builder, loc, OutputKind::Logits, "logits", logits, nullptr, nullptr, nullptr);
    at("loss");
    Value nll = CrossEntropyOp::create(builder, loc, type({"batch", "sequence"}), logits, targets);
    Value sum = einsum("b s ->", {nll}, {});
    Value loss =
        ScaleOp::create(builder, loc, sum.getType(), sum, llvm::APFloat(1.0 / (double(batch) * double(sequence))));
    OutputOp::create(builder, loc, OutputKind::Loss, "loss", loss, nullptr, nullptr, nullptr);
  }

private:
  using Dims = ArrayRef<StringRef>;

  //===-- leaves -------------------------------------------------------------------===//

  SmallVector<int64_t> sizes(Dims dims) {
    SmallVector<int64_t> result;
    for (StringRef dim : dims)
      result.push_back(names.lookup(dim));
    return result;
  }
  RankedTensorType type(Dims dims) { return RankedTensorType::get(sizes(dims), f32); }

  Value input(InputKind kind) {
    return InputOp::create(builder, loc, RankedTensorType::get({batch, sequence}, builder.getI32Type()), kind,
                           builder.getStrArrayAttr({"batch", "sequence"}), nullptr, nullptr, nullptr);
  }
  /// What the next dropout of the model draws by.
  Value random() {
    return InputOp::create(builder, loc, RankedTensorType::get({PCRT_RANDOM_COUNT}, builder.getI32Type()),
                           InputKind::Random, builder.getStrArrayAttr({"random"}), nullptr, nullptr,
                           builder.getI64IntegerAttr(numDropouts++));
  }

  /// A parameter that is a part of the Hugging Face tensor `name` of shape `shape`: `size` elements from `start` on.
  Value box(StringRef name, StringRef suffix, Dims dims, double std, double fill, ArrayRef<int64_t> shape,
            ArrayRef<int64_t> start, ArrayRef<int64_t> size) {
    std::string tensor = prefix + name.str();
    MLIRContext *context = builder.getContext();
    bool normal = std > 0;
    auto init = InitAttr::get(context, normal ? InitKind::Normal : InitKind::Fill,
                              builder.getF64FloatAttr(normal ? std : fill), /*zeroRow=*/-1);
    auto full = builder.getStringAttr(tensor + suffix.str());
    return ParameterOp::create(builder, NameLoc::get(full), type(dims), full, builder.getStrArrayAttr(dims), init,
                               SourceAttr::get(context, tensor, shape, start, size), nullptr, nullptr, nullptr, nullptr,
                               nullptr, nullptr);
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

  /// The token embedding, which may also be the head. The padding row is initialized with zeros.
  Value tokenTable(StringRef name) {
    auto op = parameter(name, {"vocab", "embed"}, config.initStd).getDefiningOp<ParameterOp>();
    InitAttr init = op.getInit();
    op.setInitAttr(InitAttr::get(builder.getContext(), init.getKind(), init.getValue(), config.padding));
    return op.getValue();
  }

  void ropeTables() {
    auto table = [&](TableKind kind) {
      return RopeTableOp::create(builder, loc, RankedTensorType::get({sequence, config.headDim / 2}, f32),
                                 TableKindAttr::get(builder.getContext(), kind),
                                 builder.getDenseF32ArrayAttr(config.inverseFrequencies), builder.getF64FloatAttr(1.0),
                                 nullptr, nullptr);
    };
    cos = table(TableKind::Cos);
    sin = table(TableKind::Sin);
  }

  //===-- pieces -------------------------------------------------------------------===//

  void at(const Twine &name) { loc = NameLoc::get(builder.getStringAttr(name)); }
  std::string layerName(StringRef name) {
    return ((config.type == "gpt2" ? "h." : "layers.") + Twine(layer) + "." + name).str();
  }
  void in(StringRef name) { at(layerName(name)); }

  Value einsum(StringRef spec, ValueRange inputs, Dims dims) {
    return EinsumOp::create(builder, loc, type(dims), spec, inputs);
  }
  Value dropout(Value x, int64_t parts) {
    return parts ? DropoutOp::create(builder, loc, x.getType(), x, random(), ValueRange(), drop(parts)) : x;
  }
  DropAttr drop(int64_t parts) { return parts ? DropAttr::get(builder.getContext(), parts) : DropAttr(); }
  Value add(Value a, Value b) { return AddOp::create(builder, loc, a.getType(), a, b); }

  /// Adds a bias over the trailing dims of x: `spec` broadcasts it.
  Value bias(Value x, Value b, StringRef spec) {
    return add(x, EinsumOp::create(builder, loc, x.getType(), spec, ValueRange{b}));
  }

  Value norm(Value x, StringRef name, StringRef dim) {
    auto xType = cast<RankedTensorType>(x.getType());
    auto rows = RankedTensorType::get(xType.getShape().drop_back(), f32);
    Value gamma = parameter((name + ".weight").str(), {dim}, 0, {}, 1.0);
    auto eps = builder.getF64FloatAttr(config.normEps);
    if (config.type == "gpt2") {
      Value beta = parameter((name + ".bias").str(), {dim}, 0);
      return LayerNormOp::create(builder, loc, xType, rows, rows, x, gamma, beta, eps).getY();
    }
    return RMSNormOp::create(builder, loc, xType, rows, x, gamma, eps).getY();
  }

  Value positionEmbedding() {
    Value table = parameter("wpe.weight", {"position", "embed"}, config.initStd);
    Value positions = IotaOp::create(builder, loc, RankedTensorType::get({sequence}, builder.getI32Type()), Value());
    Value rows =
        EmbeddingOp::create(builder, loc, type({"sequence", "embed"}), table, positions, Value(), IntegerAttr());
    return einsum("s e -> b s e", {rows}, {"batch", "sequence", "embed"});
  }

  Value attention(Value q, Value k, Value v) {
    double scale = config.scaleScores ? 1.0 / std::sqrt(double(config.headDim)) : 1.0;
    if (config.scaleByLayer)
      scale /= double(layer + 1);
    Value words = config.attentionDrop ? random() : Value();
    return AttentionOp::create(builder, loc, type({"batch", "sequence", "kv_heads", "group", "head_dim"}),
                               type({"batch", "kv_heads", "group", "sequence"}), q, k, v, words, Value(), ValueRange(),
                               builder.getF64FloatAttr(scale), builder.getUnitAttr(), drop(config.attentionDrop))
        .getO();
  }

  Value activate(Value x) { return ActivationOp::create(builder, loc, x.getType(), config.activation, x); }

  static constexpr StringRef Q[] = {"batch", "sequence", "kv_heads", "group", "head_dim"};
  static constexpr StringRef KV[] = {"batch", "sequence", "kv_heads", "head_dim"};
  static constexpr StringRef X[] = {"batch", "sequence", "embed"};
  static constexpr StringRef F[] = {"batch", "sequence", "ffn"};

  Value gpt2Layer(Value x) {
    // c_attn is [embed, 3 * embed]; q, k and v are its thirds.
    int64_t e = config.embed;
    auto project = [&](Value y, StringRef part, int64_t third) {
      bool q = part == ":q";
      in("attn.c_attn" + part.str());
      SmallVector<StringRef> dims{"embed", "kv_heads"};
      if (q)
        dims.push_back("group");
      dims.push_back("head_dim");
      Value w = box(layerName("attn.c_attn.weight"), part, dims, config.initStd, 0, {e, 3 * e}, {0, third * e}, {e, e});
      Value b = box(layerName("attn.c_attn.bias"), part, ArrayRef(dims).drop_front(), 0, 0, {3 * e}, {third * e}, {e});
      Value p = einsum(q ? "b s e, e k g d -> b s k g d" : "b s e, e k d -> b s k d", {y, w}, q ? Dims(Q) : Dims(KV));
      return bias(p, b, q ? "k g d -> b s k g d" : "k d -> b s k d");
    };
    double projectionStd = config.initStd / std::sqrt(2.0 * config.layers);
    in("ln_1");
    Value y = norm(x, layerName("ln_1"), "embed");
    Value q = project(y, ":q", 0), k = project(y, ":k", 1), v = project(y, ":v", 2);
    in("attn");
    Value o = attention(q, k, v);
    in("attn.c_proj");
    Value w =
        parameter(layerName("attn.c_proj.weight"), {"kv_heads", "group", "head_dim", "embed"}, projectionStd, {3, 1});
    Value b = parameter(layerName("attn.c_proj.bias"), {"embed"}, 0);
    y = bias(einsum("b s k g d, k g d e -> b s e", {o, w}, X), b, "e -> b s e");
    x = add(x, dropout(y, config.residualDrop));
    in("ln_2");
    y = norm(x, layerName("ln_2"), "embed");
    in("mlp.c_fc");
    w = parameter(layerName("mlp.c_fc.weight"), {"embed", "ffn"}, config.initStd);
    b = parameter(layerName("mlp.c_fc.bias"), {"ffn"}, 0);
    Value h = activate(bias(einsum("b s e, e f -> b s f", {y, w}, F), b, "f -> b s f"));
    in("mlp.c_proj");
    w = parameter(layerName("mlp.c_proj.weight"), {"ffn", "embed"}, projectionStd);
    b = parameter(layerName("mlp.c_proj.bias"), {"embed"}, 0);
    y = bias(einsum("b s f, f e -> b s e", {h, w}, X), b, "e -> b s e");
    return add(x, dropout(y, config.residualDrop));
  }

  Value llamaLayer(Value x) {
    double std = config.initStd;
    auto rope = [&](Value v) { return RopeOp::create(builder, loc, v.getType(), v, cos, sin, UnitAttr()).getResult(); };
    auto project = [&](Value y, StringRef name, bool q) {
      std::string base = layerName(("self_attn." + name).str());
      in(("self_attn." + name).str());
      SmallVector<StringRef> dims{"kv_heads"};
      if (q)
        dims.push_back("group");
      dims.push_back("head_dim");
      int64_t count = dims.size();
      SmallVector<StringRef> weightDims(dims);
      weightDims.push_back("embed");
      int64_t e = config.embed, queries = config.heads * config.headDim, keys = config.kvHeads * config.headDim;
      int64_t start = q ? 0 : name == "k_proj" ? queries : queries + keys;
      Value w = config.fused ? box(layerName("self_attn.qkv_proj.weight"), (":" + name.take_front()).str(), weightDims,
                                   std, 0, {queries + 2 * keys, e}, {start, 0}, {q ? queries : keys, e})
                             : parameter(base + ".weight", weightDims, std, {count, 1});
      Value p = einsum(q ? "b s e, k g d e -> b s k g d" : "b s e, k d e -> b s k d", {y, w}, q ? Dims(Q) : Dims(KV));
      if (!config.qkvBias)
        return p;
      return bias(p, parameter(base + ".bias", dims, 0, {count}), q ? "k g d -> b s k g d" : "k d -> b s k d");
    };
    in("input_layernorm");
    Value y = norm(x, layerName("input_layernorm"), "embed");
    Value q = project(y, "q_proj", true), k = project(y, "k_proj", false), v = project(y, "v_proj", false);
    if (config.qkNorm) {
      in("self_attn.q_norm");
      q = norm(q, layerName("self_attn.q_norm"), "head_dim");
      in("self_attn.k_norm");
      k = norm(k, layerName("self_attn.k_norm"), "head_dim");
    }
    in("self_attn");
    Value o = attention(rope(q), rope(k), v);
    in("self_attn.o_proj");
    Value w = parameter(layerName("self_attn.o_proj.weight"), {"embed", "kv_heads", "group", "head_dim"}, std, {1, 3});
    Value z = einsum("b s k g d, e k g d -> b s e", {o, w}, X);
    if (config.outBias)
      z = bias(z, parameter(layerName("self_attn.o_proj.bias"), {"embed"}, 0), "e -> b s e");
    x = add(x, dropout(z, config.residualDrop));
    in("post_attention_layernorm");
    y = norm(x, layerName("post_attention_layernorm"), "embed");
    auto linear = [&](Value input, StringRef name, StringRef spec, Dims weightDims, Dims resultDims) {
      std::string base = layerName(("mlp." + name).str());
      in(("mlp." + name).str());
      bool down = name == "down_proj";
      int64_t e = config.embed, f = config.ffn;
      Value w = config.fused && !down ? box(layerName("mlp.gate_up_proj.weight"), (":" + name.split('_').first).str(),
                                            weightDims, std, 0, {2 * f, e}, {name == "up_proj" ? f : 0, 0}, {f, e})
                                      : parameter(base + ".weight", weightDims, std);
      Value p = einsum(spec, {input, w}, resultDims);
      if (!config.mlpBias)
        return p;
      return bias(p, parameter(base + ".bias", {down ? "embed" : "ffn"}, 0), down ? "e -> b s e" : "f -> b s f");
    };
    Value gate = linear(y, "gate_proj", "b s e, f e -> b s f", {"ffn", "embed"}, F);
    Value up = linear(y, "up_proj", "b s e, f e -> b s f", {"ffn", "embed"}, F);
    in("mlp");
    Value h = einsum("b s f, b s f -> b s f", {activate(gate), up}, F);
    return add(x, dropout(linear(h, "down_proj", "b s f, e f -> b s e", {"embed", "ffn"}, X), config.residualDrop));
  }

  OpBuilder &builder;
  const ModelConfig &config;
  int64_t batch, sequence, layer = 0, numDropouts = 0;
  Type f32;
  llvm::StringMap<int64_t> names;
  std::string prefix;
  Location loc = NameLoc::get(builder.getStringAttr("model"));
  Value cos, sin;
};

} // namespace

OwningOpRef<ModuleOp> pc::buildModel(MLIRContext *context, const ModelConfig &config, const ImportOptions &options) {
  context->loadDialect<PCDialect, func::FuncDialect>();
  OpBuilder builder(context);
  Location loc = NameLoc::get(builder.getStringAttr(config.type));
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  builder.setInsertionPointToEnd(module->getBody());
  ProgramOp::create(builder, loc, config.type, options.batch, options.sequence, config.vocab, config.text,
                    builder.getStringAttr(config.means), nullptr, nullptr);
  auto function = func::FuncOp::create(builder, loc, "model", builder.getFunctionType({}, {}));
  builder.setInsertionPointToStart(function.addEntryBlock());
  ModelBuilder(builder, config, options).build();
  func::ReturnOp::create(builder, loc);
  return module;
}
