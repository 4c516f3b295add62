//===- ModelLayers.cpp - MLPs, experts, and the parts of a layer ---------------------===//
// Builds MLPs (gated or not), mixtures of experts (one tensor per expert, or one for all with clamped gates), and the
// order of norms, blocks and residual sums in a layer, which `LayerForm` and ModelConfig choose.
//===-----------------------------------------------------------------------------===//
#include "ModelBuilder.h"

using namespace mlir;
using namespace pc;

/// The parts of the parameter are the experts' tensors, each of which keeps its own number.
Value ModelBuilder::expertsParameter(StringRef name, Dims dims) {
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
  return ParameterOp::create(builder, NameLoc::get(all), type(dims), all, builder.getStrArrayAttr(dims), init, nullptr,
                             builder.getI64IntegerAttr(along), builder.getArrayAttr(parts), nullptr, nullptr, nullptr,
                             nullptr, nullptr, nullptr);
}

/// Gate and up may be the two halves of one tensor in the file.
Value ModelBuilder::linear(Value x, StringRef name, bool down, int64_t part) {
  bool isHalf = !form->gateUp.empty() && !down;
  StringRef from = down ? "ffn" : "embed", to = down ? "embed" : "ffn", suffix = part ? ":up" : ":gate";
  SmallVector<StringRef> dims = form->inputsFirst ? SmallVector<StringRef>{from, to} : SmallVector<StringRef>{to, from};
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

/// down(act(up y)), or with a gate down(act(gate y) * up y).
Value ModelBuilder::mlpBlock(Value y) {
  if (form->gate.empty())
    return linear(dropout(activate(linear(y, form->up, false, 0)), config.ffnDrop), form->down, true, 0);
  Value gate = linear(y, form->gate, false, 0), up = linear(y, form->up, false, 1);
  in(form->mlp);
  Value h = einsum("b s f, b s f -> b s f", {activate(gate), up}, F);
  return linear(dropout(h, config.ffnDrop), form->down, true, 0);
}

/// Builds a gated MLP with the width of the shared experts.
Value ModelBuilder::sharedExperts(Value y) {
  // `linear` uses the width of "ffn", which is different for shared experts.
  int64_t width = names["ffn"];
  names["ffn"] = config.sharedFfn;
  std::string name = form->sharedExperts.str();
  Value gate = linear(y, name + ".gate_proj", false, 0), up = linear(y, name + ".up_proj", false, 1);
  in(name);
  Value z = linear(einsum("b s f, b s f -> b s f", {activate(gate), up}, F), name + ".down_proj", true, 0);
  names["ffn"] = width;
  return z;
}

Value ModelBuilder::routedBy(const Routing &routing, Dims dims, StringRef spec, ValueRange inputs) {
  return routedEinsum(builder, loc, type(dims), spec, inputs, routing.taken, config.expertsPerToken);
}

/// Builds the router, the choice of experts, and the products that only chosen experts compute.
Value ModelBuilder::expertsBlock(Value y) {
  in(form->router);
  Value w = parameter(layerName(form->router + ".weight"), {"experts", "embed"}, config.initStd);
  Value logits = einsum("b s e, n e -> b s n", {y, w}, {"batch", "sequence", "experts"});
  if (!form->expertGateUp.empty())
    logits = bias(logits, parameter(layerName(form->router + ".bias"), {"experts"}, config.initStd), "n -> b s n");
  Routing routing;
  if (form->correction.empty()) {
    routing = route(builder, loc, layer, logits, config.expertsPerToken, config.normalizesExperts);
  } else {
    Value correction = parameter(layerName(form->router + "." + form->correction), {"experts"}, 0);
    routing = routeByGroups(
        builder, loc, layer, logits, correction,
        {config.groups, config.keptGroups, config.expertsPerToken, config.normalizesExperts, config.routingScale});
  }
  limit(builder, loc, config.capacity, routing);
  if (config.balance != 0)
    balance.add(builder, loc, routing);
  if (!form->expertGateUp.empty())
    return clampedExperts(y, routing);
  // Products with `routing` have the mask of chosen experts as their last operand.
  auto routed = [&](Dims dims, StringRef spec, ValueRange inputs) { return routedBy(routing, dims, spec, inputs); };
  auto into = [&](StringRef name) {
    in(form->experts + "." + name);
    Value weights = expertsParameter(name, {"experts", "expert_ffn", "embed"});
    return routed({"batch", "sequence", "experts", "expert_ffn"}, "b s e, n f e, b s n -> b s n f", {y, weights});
  };
  Value gate = into(form->expertGate), up = into(form->expertUp);
  in(form->experts);
  // The routing weight multiplies before the last product, which then sums over experts.
  Value h = routed({"batch", "sequence", "experts", "expert_ffn"}, "b s n f, b s n f, b s n, b s n -> b s n f",
                   {activate(gate), up, routing.weights});
  in(form->experts + "." + form->expertDown);
  Value down = expertsParameter(form->expertDown, {"embed", "experts", "expert_ffn"});
  Value z = routed(X, "b s n f, e n f, b s n -> b s e", {h, down});
  return form->sharedExperts.empty() ? z : add(z, sharedExperts(y));
}

/// Weights of all experts are in one tensor, in which the columns of gate and up alternate.
Value ModelBuilder::clampedExperts(Value y, const Routing &routing) {
  const int64_t n = config.experts, e = config.embed, f = config.expertFfn;
  auto routed = [&](Dims dims, StringRef spec, ValueRange inputs) { return routedBy(routing, dims, spec, inputs); };
  // GPT-OSS: (clamp(up) + 1) times x sigmoid(a x), with x the clamped gate; gate and up alternate in one tensor.
  const StringRef hidden[] = {"batch", "sequence", "experts", "expert_ffn"};
  auto into = [&](int64_t part, StringRef suffix, double more) {
    std::string name = (form->experts + "." + form->expertGateUp).str();
    in(name + suffix);
    Value w = box(layerName(name), suffix, {"experts", "embed", "expert_ffn"}, config.initStd, 0, {n, e, 2 * f},
                  {0, 0, 0, part}, {n, e, f, 1}, {n, e, f, 2});
    Value b = box(layerName(name + "_bias"), suffix, {"experts", "expert_ffn"}, 0, 0, {n, 2 * f}, {0, 0, part},
                  {n, f, 1}, {n, f, 2});
    if (more != 0)
      b = add(b, like(b, "-> n f", {constant(more)}));
    Value x = routed(hidden, "b s e, n e f, b s n -> b s n f", {y, w});
    return add(x, routed(hidden, "n f, b s n -> b s n f", {b}));
  };
  auto number = [&](double value) { return builder.getF64FloatAttr(value); };
  Value gate = into(0, ":gate", 0);
  gate = ClampOp::create(builder, loc, gate.getType(), gate, FloatAttr(), number(config.gateLimit));
  // 1 is added after a clamp, or, without a clamp, to the bias, so that it is stored by expert and not by token.
  Value up = into(1, ":up", 1);
  in(form->experts);
  up = ClampOp::create(builder, loc, up.getType(), up, number(1 - config.gateLimit), number(1 + config.gateLimit));
  gate = scaled(gate, config.gateSlope); // x sigmoid(a x) = silu(a x) / a
  gate = ActivationOp::create(builder, loc, gate.getType(), ActivationKind::Silu, gate);
  gate = scaled(gate, 1 / config.gateSlope);
  Value h = routed(hidden, "b s n f, b s n f, b s n, b s n -> b s n f", {gate, up, routing.weights});
  std::string name = (form->experts + "." + form->expertDown).str();
  in(name);
  Value w = parameter(layerName(name), {"experts", "expert_ffn", "embed"}, config.initStd);
  Value b = parameter(layerName(name + "_bias"), {"experts", "embed"}, 0);
  Value z = routed(X, "b s n f, n f e, b s n -> b s e", {h, w});
  return add(z, like(z, "b s n, n e -> b s e", {routing.weights, b}));
}

/// Order of parts: norm, attention, sum, norm, MLP or experts, sum. The form decides where the norms are.
Value ModelBuilder::layerOf(Value x) {
  // `before` normalizes the input of a block, unless norms are after the residual sums (BERT).
  bool first = !config.normAfterSum;
  auto before = [&](Value value, StringRef name) { return first ? layerNorm(value, name) : value; };
  auto after = [&](Value value, StringRef name) { return first ? value : layerNorm(value, name); };
  Value y = before(x, form->beforeAttention),
        z = layerNorm(form->latent ? latentAttention(y) : attentionBlock(form->attention, y, y), form->afterAttention);
  z = dropout(z, config.residualDrop);
  // GPT-NeoX: attention and MLP both read the layer's input, and one sum adds all three.
  if (config.parallel) {
    Value m = dropout(mlpBlock(layerNorm(x, form->beforeMlp)), config.residualDrop);
    return add(add(m, z), x);
  }
  x = after(add(x, z), form->beforeAttention);
  if (encoded)
    x = add(x, dropout(attentionBlock(form->cross, layerNorm(x, form->beforeCross), encoded), config.residualDrop));
  y = before(x, form->beforeMlp);
  z = layerNorm(config.experts && config.hasExperts[layer] ? expertsBlock(y) : mlpBlock(y), form->afterMlp);
  return after(add(x, dropout(z, config.residualDrop)), form->beforeMlp);
}
