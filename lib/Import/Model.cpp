//===- Model.cpp - Builds the leaves of a model and the parts around its layers --------===//
// The ops of a model have this order: inputs, embedding, layers (ModelLayers.cpp), final norm, head, loss. A parameter
// records the name of its tensor and its box in the tensor, from which a run reads the weights.
//===-----------------------------------------------------------------------------===//
#include "ModelBuilder.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace pc;

/// The named sizes do not change while a model is built, except for the sequence and the width of MLPs.
ModelBuilder::ModelBuilder(OpBuilder &builder, const ModelConfig &config, const ImportOptions &options)
    : builder(builder), config(config), form(&config.family->form), prefix(form->prefix), batch(options.batch),
      sequence(sequenceOf(config, options)), targetLength(options.targets.value_or(sequence)),
      documents(options.documents), labelSmoothing(options.labelSmoothing), zLoss(options.zLoss),
      f32(builder.getF32Type()) {
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
           {"head_dim", config.headDim},
           {"query_rank", config.queryRank},
           {"key_rank", config.keyRank},
           {"plain_dim", config.plainDim},
           {"rope_dim", config.ropeDim},
           {"value_dim", config.valueDim}};
}

/// Builds the function from its inputs to the loss.
void ModelBuilder::build() {
  Value tokens = input(InputKind::Tokens, builder.getI32Type()),
        targets = input(InputKind::Targets, builder.getI32Type());
  if (documents)
    starts = input(InputKind::Starts, builder.getI32Type());
  Value table = tokenTable((form->tokens + ".weight").str());
  Value x;
  // The encoder's stack comes first. From here on "sequence" means the decoder's.
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
  // Gemma 2: cap * tanh(logits / cap).
  if (config.logitCap > 0) {
    logits = scaled(logits, 1 / config.logitCap);
    logits = ActivationOp::create(builder, loc, logits.getType(), ActivationKind::Tanh, logits);
    logits = scaled(logits, config.logitCap);
  }
  OutputOp::create(builder, loc, OutputKind::Logits, "logits", logits, nullptr, nullptr, nullptr);
  at("loss");
  Value nll = lossOf(logits, targets);
  // The loss is a weighted sum, so that ignored targets and microbatches need no special case.
  Value weights = input(InputKind::LossWeights, f32);
  if (config.balance != 0) // per token, so that a microbatch is weighted by its targets
    nll = bias(nll, balance.loss(builder, loc, config.balance, config.expertsPerToken), "-> b s");
  Value loss = einsum("b s, b s ->", {nll, weights}, {});
  OutputOp::create(builder, loc, OutputKind::Loss, "loss", loss, nullptr, nullptr, nullptr);
}

Value ModelBuilder::lossOf(Value logits, Value targets) {
  RankedTensorType tokens = type({"batch", "sequence"});
  Value nll = CrossEntropyOp::create(builder, loc, tokens, logits, targets);
  if (labelSmoothing == 0 && zLoss == 0)
    return nll;
  Value sum = LogSumExpOp::create(builder, loc, tokens, logits);
  if (labelSmoothing != 0) { // log p of a class is its logit minus `sum`
    Value mean = scaled(einsum("b s v -> b s", {logits}, {"batch", "sequence"}), 1 / double(config.vocab));
    Value ofAll = SubOp::create(builder, loc, tokens, sum, mean);
    nll = add(scaled(nll, 1 - labelSmoothing), scaled(ofAll, labelSmoothing));
  }
  return zLoss == 0 ? nll : add(nll, scaled(like(sum, "b s, b s -> b s", {sum, sum}), zLoss));
}

/// Embeds tokens, adds positions and types, and builds the layers and the last norm.
Value ModelBuilder::stack(Value table, Value tokens, int64_t layers) {
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
  // Layers share one bias of relative positions, which the first layer of the stack computes.
  relative = Value();
  for (layer = 0; layer < layers; ++layer)
    x = layerOf(x);
  if (config.normAfterSum)
    return x;
  at(name + "final_norm");
  return dropout(norm(x, form->finalNorm, "embed"), config.finalDrop);
}

/// Inputs of targets have the length of targets; all others have the length of the tokens.
Value ModelBuilder::input(InputKind kind, Type element) {
  bool isOfTargets = llvm::is_contained({InputKind::Targets, InputKind::LossWeights, InputKind::Shifted}, kind);
  IntegerAttr key;
  if (kind == InputKind::Starts || kind == InputKind::Positions)
    key = builder.getI64IntegerAttr(*documents);
  if (kind == InputKind::Shifted)
    key = builder.getI64IntegerAttr(config.startToken);
  return InputOp::create(builder, loc, RankedTensorType::get({batch, isOfTargets ? targetLength : sequence}, element),
                         kind, builder.getStrArrayAttr({"batch", "sequence"}), nullptr, nullptr, key, nullptr, nullptr,
                         nullptr);
}

/// The location of a parameter is its full name, by which passes find its layer.
Value ModelBuilder::box(StringRef name, StringRef suffix, Dims dims, double std, double fill, ArrayRef<int64_t> shape,
                        ArrayRef<int64_t> start, ArrayRef<int64_t> size, ArrayRef<int64_t> view) {
  std::string tensor = prefix + name.str();
  MLIRContext *context = builder.getContext();
  bool normal = std > 0;
  auto init = InitAttr::get(context, normal ? InitKind::Normal : InitKind::Fill,
                            builder.getF64FloatAttr(normal ? std : fill), /*zeroRow=*/-1);
  auto full = builder.getStringAttr(tensor + suffix.str());
  ++numParameters;
  return ParameterOp::create(builder, NameLoc::get(full), type(dims), full, builder.getStrArrayAttr(dims), init,
                             SourceAttr::get(context, tensor, shape, start, size, view), nullptr, nullptr, nullptr,
                             nullptr, nullptr, nullptr, nullptr, nullptr);
}

/// A parameter that is a whole tensor of the checkpoint. `merged` has the number of parameter dims in each dim of the
/// tensor.
Value ModelBuilder::parameter(StringRef name, Dims dims, double std, ArrayRef<int64_t> merged, double fill) {
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

Value ModelBuilder::tokenTable(StringRef name) {
  auto op = parameter(name, {"vocab", "embed"}, config.initStd).getDefiningOp<ParameterOp>();
  InitAttr init = op.getInit();
  op.setInitAttr(InitAttr::get(builder.getContext(), init.getKind(), init.getValue(), config.padding));
  return op.getValue();
}

Value ModelBuilder::ropeTable(TableKind kind, const Rotation &rope) {
  auto size = static_cast<int64_t>(rope.frequencies.size());
  return RopeTableOp::create(
      builder, loc, RankedTensorType::get({sequence, size}, f32), TableKindAttr::get(builder.getContext(), kind),
      builder.getDenseF32ArrayAttr(rope.frequencies), builder.getF64FloatAttr(rope.scale), nullptr, nullptr);
}

/// The family's norm over the last dim, with its parameters.
Value ModelBuilder::norm(Value x, StringRef name, StringRef dim) {
  auto xType = cast<RankedTensorType>(x.getType());
  auto rows = RankedTensorType::get(xType.getShape().drop_back(), f32);
  // Gemma stores gamma - 1.
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

Value ModelBuilder::layerNorm(Value x, StringRef name) {
  if (name.empty())
    return x;
  in(name);
  return norm(x, layerName(name), "embed");
}

/// Writes the norm with einsums, because `pc.rms_norm` sums over one dim only.
Value ModelBuilder::normOfAll(Value x, StringRef name, Dims dims, StringRef letters) {
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

/// Learned positions: rows of the table in order or, with documents, at the indices of the input of positions.
Value ModelBuilder::positionEmbedding() {
  Value table = parameter((form->positions + ".weight").str(), {"position", "embed"}, config.initStd);
  auto look = [&](Value rows, Value index, RankedTensorType found) -> Value {
    return EmbeddingOp::create(builder, loc, found, rows, index, Value(), IntegerAttr());
  };
  auto rowsOfSequence = [&] { // rows in the order of positions
    auto positions = RankedTensorType::get({sequence}, builder.getI32Type());
    return look(table, IotaOp::create(builder, loc, positions, config.firstPosition), type({"sequence", "embed"}));
  };
  if (documents) // positions begin at 0, and so do the rows of the looked-up part of the table
    return look(config.firstPosition ? rowsOfSequence() : table, input(InputKind::Positions, builder.getI32Type()),
                type(X));
  Value rows = rowsOfSequence();
  return einsum("s e -> b s e", {rows}, {"batch", "sequence", "embed"});
}

/// All tokens have type 0, so one row of the table is added at each position.
Value ModelBuilder::typeEmbedding() {
  Value table = parameter((form->tokenTypes + ".weight").str(), {"token_types", "embed"}, config.initStd);
  Value zero = IotaOp::create(builder, loc, RankedTensorType::get({1}, builder.getI32Type()), 0);
  Value row = EmbeddingOp::create(builder, loc, RankedTensorType::get({1, config.embed}, f32), table, zero, Value(),
                                  IntegerAttr());
  return einsum("o e -> b s e", {row}, X);
}

/// These tensors have no prefix.
Value ModelBuilder::headTransform(Value x) {
  prefix = "";
  std::string dense = (form->headTransform + ".dense").str();
  at(dense);
  Value w = parameter(dense + ".weight", {"embed", "embed"}, config.initStd);
  Value y = einsum("b s e, f e -> b s f", {x, w}, X);
  y = activate(bias(y, parameter(dense + ".bias", {"embed"}, 0), "f -> b s f"));
  at(form->headTransform + ".LayerNorm");
  return norm(y, (form->headTransform + ".LayerNorm").str(), "embed");
}

/// The module has one `pc.program`, which describes the model, and the function `@model`.
OwningOpRef<ModuleOp> pc::buildModel(MLIRContext *context, const ModelConfig &config, const ImportOptions &options) {
  context->loadDialect<PCDialect, func::FuncDialect>();
  OpBuilder builder(context);
  Location loc = NameLoc::get(builder.getStringAttr(config.type));
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  builder.setInsertionPointToEnd(module->getBody());
  ProgramOp::create(builder, loc, config.type, options.batch, sequenceOf(config, options), config.vocab, config.text,
                    builder.getStringAttr(config.means), /*weights=*/nullptr,
                    /*masked=*/!config.family->form.causal || config.family->encoder,
                    options.targets ? builder.getI64IntegerAttr(*options.targets) : nullptr, /*zigzag=*/nullptr);
  auto function = func::FuncOp::create(builder, loc, "model", builder.getFunctionType({}, {}));
  builder.setInsertionPointToStart(function.addEntryBlock());
  ModelBuilder(builder, config, options).build();
  func::ReturnOp::create(builder, loc);
  return module;
}
