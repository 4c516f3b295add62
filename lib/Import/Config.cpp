//===- Config.cpp - config.json of the supported families -----------------------------===//
// Every key of a config.json is used, known not to change results, refused by name, or named in a warning.
//===-----------------------------------------------------------------------------===//
#include "Config.h"
#include "ConfigReader.h"
#include "ConfigSections.h"
#include "pc/Support/Diagnostics.h"
#include "pc/Support/ReadJson.h"

#include <cmath>

using namespace mlir;
using namespace pc;

namespace {

/// Keys that do not change what a training step computes.
constexpr llvm::StringRef harmless[] = {
#define HARMLESS(KEY, VALUE) KEY,
#include "HarmlessKeys.inc"
};

} // namespace

/// The sets of names that mean the same activation. Each is also recorded for checkpoints.
void pc::readActivation(ConfigReader &reader, ConfigKey key, llvm::StringRef absent, ModelConfig &config) {
  constexpr llvm::StringRef tanhs[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"}, gelu[] = {"gelu"},
                            silus[] = {"silu", "swish"}, relu[] = {"relu"};
  const std::pair<ActivationKind, llvm::ArrayRef<llvm::StringRef>> kinds[] = {{ActivationKind::GeluTanh, tanhs},
                                                                              {ActivationKind::Gelu, gelu},
                                                                              {ActivationKind::Silu, silus},
                                                                              {ActivationKind::Relu, relu}};
  std::string name = reader.text(key, absent, {tanhs, gelu, silus, relu});
  for (auto [kind, names] : kinds)
    if (llvm::is_contained(names, name)) {
      config.activation = kind;
      return;
    }
  reader.fail() << reader.name(key) << " = \"" << escaped(name)
                << "\" is not supported; supported activations: gelu, gelu_new, gelu_pytorch_tanh, silu, relu";
}

/// Reads a dropout probability and returns it in units of 1/65536, rounded, since the runtime compares 16 random bits
/// with it.
int64_t pc::readDropout(ConfigReader &reader, ConfigKey key, double absent, std::optional<double> instead) {
  double p = reader.real(key, absent, KeyRole::Aside);
  if (!reader.failed && !(p >= 0 && p < 1))
    reader.fail() << reader.name(key) << " = " << p << " must be at least 0 and below 1";
  auto parts = static_cast<int64_t>(std::nearbyint(65536 * instead.value_or(p)));
  if (!reader.failed && parts == 65536)
    reader.fail() << reader.name(key)
                  << ": dropout would keep less than 1 in 65536 elements; use a smaller probability";
  return parts;
}

ConfigKey pc::keyOf(llvm::StringRef name, llvm::StringRef other) {
  ConfigKey key(name);
  if (!other.empty())
    key.places.push_back(other);
  return key;
}

namespace {

/// GPT-2's keys differ from those of later families, so this function reads them without a family's description.
void readGPT2(ConfigReader &reader, ModelConfig &config, const ImportOptions &options) {
  config.family = &gpt2Family;
  config.vocab = reader.size("vocab_size");
  config.positions = reader.size("n_positions");
  config.embed = reader.size("n_embd");
  config.layers = reader.size("n_layer");
  config.heads = config.kvHeads = reader.size("n_head");
  config.ffn = reader.size("n_inner", 4 * config.embed);
  config.normEps = reader.positive("layer_norm_epsilon", 1e-5);
  config.initStd = reader.positive("initializer_range", 0.02, KeyRole::Aside);
  config.tied = reader.flag("tie_word_embeddings", true);
  bool scaled = reader.flag("scale_attn_weights", true);
  config.scaleByLayer = reader.flag("scale_attn_by_inverse_layer_idx", false);
  config.qkvBias = config.outBias = config.mlpBias = true;
  readActivation(reader, "activation_function", "gelu_new", config);
  config.embedDrop = readDropout(reader, "embd_pdrop", 0.1, options.dropout);
  config.attentionDrop = readDropout(reader, "attn_pdrop", 0.1, options.dropout);
  config.residualDrop = readDropout(reader, "resid_pdrop", 0.1, options.dropout);
  reader.onlyFlag("add_cross_attention", false);
  reader.raw("pad_token_id"); // ignored: GPT-2's embedding table has no padding row
  reader.raw("output_past");  // ignored: from early versions of transformers
  if (!reader.failed && config.embed % config.heads)
    reader.fail() << "'n_embd' = " << config.embed << " is not divisible by 'n_head' = " << config.heads;
  config.headDim = config.embed / config.heads;
  config.scale = scaled ? 1.0 / std::sqrt(double(config.headDim)) : 1.0;
}

/// A config with more parameters is considered a mistake.
constexpr double mostParameters = 1e15;

/// An estimate of the model's parameters, in floating point, which does not overflow.
double parametersOf(const ModelConfig &config) {
  double heads = double(config.headDim) * double(config.heads + config.kvHeads);
  double ffn = std::max(double(config.ffn), double(config.experts) * double(config.expertFfn));
  return double(config.embed) *
         (double(config.layers + config.encoderLayers) * (2 * heads + 3 * ffn) + 2 * double(config.vocab));
}

/// Key/value heads: null means the number of query heads.
void readKVHeads(ConfigReader &reader, const Family &family, ModelConfig &config) {
  if (!family.kvHeads) {
    config.kvHeads = config.heads;
    return;
  }
  const char *key = "num_key_value_heads";
  int64_t absent = *family.kvHeads ? *family.kvHeads : config.heads;
  bool null = reader.isGiven(key) && !reader.raw(key);
  config.kvHeads = null ? config.heads : reader.size(key, absent, KeyRole::Aside);
  reader.means(key, {config.kvHeads}, absent, config.heads);
  if (!reader.failed && config.heads % config.kvHeads)
    reader.fail() << "'num_attention_heads' = " << config.heads
                  << " is not divisible by 'num_key_value_heads' = " << config.kvHeads;
}

/// The padding row of the embedding, which gets no gradient. As in nn.Embedding, negative rows count from the end.
/// `usual` is the row of a config without the key; null means that there is no row.
void readPadding(ConfigReader &reader, std::optional<int64_t> usual, ModelConfig &config) {
  const char *key = "pad_token_id";
  llvm::json::Value absent = usual ? llvm::json::Value(*usual) : nullptr;
  const llvm::json::Value *value = reader.raw(key);
  if (!value && usual && !reader.isGiven(key))
    value = &absent;
  if (!value) {
    reader.means(key, {nullptr}, absent, nullptr);
    return;
  }
  auto id = value->getAsInteger();
  if (!id || *id < -config.vocab || *id >= config.vocab) {
    reader.fail() << "'" << key << "' must be null or a token of the vocabulary of " << config.vocab << ", got "
                  << ConfigReader::show(*value);
    return;
  }
  config.padding = *id < 0 ? *id + config.vocab : *id;
  reader.means(key, {config.padding, config.padding - config.vocab}, absent, nullptr);
}

/// The number c of a cap c tanh(x / c); null means no cap.
double readCap(ConfigReader &reader, const char *key, double absent) {
  bool isCapped = reader.isGiven(key) ? reader.has(key) : absent > 0;
  llvm::json::Value usual = absent > 0 ? llvm::json::Value(absent) : nullptr, cap = nullptr;
  if (isCapped)
    cap = reader.positive(key, absent > 0 ? std::optional(absent) : std::nullopt, KeyRole::Aside);
  reader.raw(key);
  reader.means(key, {cap}, usual, nullptr);
  return cap.getAsNumber().value_or(0);
}

/// The size of a head: the value of the family's key if it has one, otherwise the family's default, or the embedding
/// divided by the heads.
void readHeads(ConfigReader &reader, const Family &family, ModelConfig &config) {
  bool isGiven = family.headDim && reader.has("head_dim");
  if (!reader.failed && !isGiven && !family.headDim.value_or(0) && config.embed % config.heads)
    reader.fail() << "'" << family.keys.embed << "' = " << config.embed << " is not divisible by '" << family.keys.heads
                  << "' = " << config.heads;
  int64_t equal = std::max<int64_t>(1, config.embed / config.heads);
  config.headDim = family.headDim ? reader.size("head_dim", *family.headDim ? *family.headDim : equal) : equal;
}

/// Reads the sizes of latent attention, whose queries, keys and values come from few numbers per token.
void readLatent(ConfigReader &reader, ModelConfig &config) {
  const char *rank = "q_lora_rank";
  constexpr int64_t usualRank = 1536;
  bool isNull = reader.isGiven(rank) && !reader.has(rank);
  config.queryRank = isNull ? 0 : reader.size(rank, usualRank);
  reader.raw(rank);
  if (isNull)
    reader.means(rank, {nullptr}, usualRank, nullptr);
  config.keyRank = reader.size("kv_lora_rank", 512);
  config.plainDim = reader.size("qk_nope_head_dim", 128);
  config.ropeDim = reader.size("qk_rope_head_dim", 64);
  config.valueDim = reader.size("v_head_dim", 128);
  config.interleaved = reader.flag("rope_interleave", true);
  config.headDim = config.plainDim + config.ropeDim;
  for (auto [key, width] : {std::pair("head_dim", config.ropeDim), std::pair("qk_head_dim", config.headDim)})
    if (int64_t given = reader.size(key, width, KeyRole::Aside); !reader.failed && given != width)
      reader.fail() << "'" << key << "' = " << given << " is not supported; it must be the sum of the parts of a head, "
                    << width;
  if (reader.failed)
    return;
  if (config.kvHeads != config.heads)
    reader.fail() << "'num_key_value_heads' = " << config.kvHeads
                  << " is not supported; it must equal 'num_attention_heads' = " << config.heads;
  if (config.valueDim > config.headDim)
    reader.fail() << "'v_head_dim' = " << config.valueDim
                  << " is not supported; it must be at most 'qk_nope_head_dim' + "
                  << "'qk_rope_head_dim' = " << config.headDim;
  if (config.interleaved && config.plainDim % 2)
    reader.fail() << "'qk_nope_head_dim' = " << config.plainDim << " is odd, which 'rope_interleave' does not support";
}

/// Reads which projections have a bias. The family determines it, or one key for all, or keys for attention and MLP.
void readBiases(ConfigReader &reader, const Family &family, ModelConfig &config) {
  config.qkvBias = family.biasOfQKV;
  config.outBias = family.biasOfOutput;
  config.mlpBias = family.biasOfMlp;
  if (!family.allBias.empty())
    config.qkvBias = config.outBias = config.mlpBias = reader.flag(family.allBias, true);
  if (!family.attentionBias.empty())
    config.qkvBias = config.outBias = reader.flag(family.attentionBias, family.attentionBiasAbsent);
  if (family.mlpBias.empty())
    return;
  config.mlpBias = reader.flag(family.mlpBias, false);
  if (int64_t tp = reader.size("pretraining_tp", 1, KeyRole::Aside); tp != 1)
    reader.fail() << "'pretraining_tp' = " << tp
                  << " is not supported; set it to 1, which only changes the order of sums";
}

/// Sizes of the model, under the family's keys for them.
void readSizes(ConfigReader &reader, const Family &family, ModelConfig &config) {
  const FamilyKeys &keys = family.keys;
  config.vocab = reader.size("vocab_size");
  config.embed = keys.otherEmbed.empty() ? reader.size(keys.embed) : reader.size(keyOf(keys.otherEmbed, keys.embed));
  int64_t wide = family.ffnFactor * config.embed;
  config.ffn = keys.ffn.empty() ? wide : reader.size(keys.ffn, wide ? std::optional(wide) : std::nullopt);
  config.layers = reader.size(keyOf(keys.layers, keys.otherLayers));
  config.heads = reader.size(keyOf(keys.heads, keys.otherHeads));
  readKVHeads(reader, family, config);
  bool isTable = !family.form.positions.empty();
  if (!keys.positions.empty())
    config.positions = reader.size(keys.positions, family.positions, isTable ? KeyRole::Computes : KeyRole::Aside);
  config.firstPosition = family.firstPosition;
  if (!keys.tokenTypes.empty())
    config.tokenTypes = reader.size(keys.tokenTypes, 2);
}

/// Reads the keys in the family's description, and refuses values that it does not allow.
void readFamily(ConfigReader &reader, const Family &family, ModelConfig &config, const ImportOptions &options) {
  const FamilyKeys &keys = family.keys;
  config.family = &family;
  readSizes(reader, family, config);
  config.normEps = family.fixedEps > 0 ? family.fixedEps : reader.positive(keys.normEps, family.normEps);
  config.initStd = reader.positive(keys.initStd, 0.02, KeyRole::Aside);
  config.tied = reader.flag("tie_word_embeddings", family.tied);
  if (!family.form.headBias.empty() && !config.tied)
    reader.fail() << "'tie_word_embeddings' = false is not supported";
  config.activation = ActivationKind::GeluTanh;
  if (!keys.activation.empty())
    readActivation(reader, keys.activation, family.activation, config);
  if (family.tanhGelu && config.activation == ActivationKind::Gelu)
    config.activation = ActivationKind::GeluTanh;
  if (family.hasPadding)
    readPadding(reader, family.padding, config);
  else
    reader.raw("pad_token_id"); // ignored: the table has no padding row
  config.attentionDrop = readDropout(reader, keys.attentionDrop, family.attentionDrop, options.dropout);
  if (family.form.latent)
    readLatent(reader, config);
  else
    readHeads(reader, family, config);
  readBiases(reader, family, config);
  if (!keys.residualDrop.empty())
    config.residualDrop = readDropout(reader, keys.residualDrop, family.residualDrop, options.dropout);
  if (!keys.embedDrop.empty())
    config.embedDrop = readDropout(reader, keys.embedDrop, family.embedDrop, options.dropout);
  // Keys without an effect here are read, so that no warning names them. Other keys have only one supported value.
  for (const char *key : family.ignored)
    reader.raw(key);
  for (auto [key, needed] : family.onlyFlags)
    reader.onlyFlag(key, needed);
  if (!family.onlyZero.empty())
    if (double value = reader.real(family.onlyZero, 0, KeyRole::Aside); value != 0)
      reader.fail() << "'" << family.onlyZero << "' = " << value << " is not supported";
  if (auto [key, word] = family.onlyWord; !key.empty())
    if (std::string value = reader.text(key, word); value != word)
      reader.fail() << "'" << key << "' = \"" << escaped(value) << "\" is not supported; the only supported value is \""
                    << word << "\"";
  if (!family.sameAsEmbed.empty())
    if (int64_t width = reader.size(family.sameAsEmbed, config.embed, KeyRole::Aside); width != config.embed)
      reader.fail() << "'" << family.sameAsEmbed << "' = " << width << " is not supported; it must equal '"
                    << keys.embed << "' = " << config.embed;
  config.parallel = !family.parallel.empty() && reader.flag(family.parallel, true);
  config.normAfterSum = family.normsAfterSums;
  if (!family.normFirst.empty())
    config.normAfterSum = !reader.flag(family.normFirst, true);
  // Scores are divided by the root of the head's width, or of the width that the config states for it.
  double width = family.scoreDim.empty() ? double(config.headDim) : reader.positive(family.scoreDim, 256);
  config.scale = family.unscaled ? 1.0 : 1.0 / std::sqrt(width);
  if (family.scoreCap)
    config.scoreCap = readCap(reader, "attn_logit_softcapping", *family.scoreCap);
  if (family.logitCap)
    config.logitCap = readCap(reader, "final_logit_softcapping", *family.logitCap);
  if (!family.experts.count.empty())
    readExperts(reader, family, config);
  if (family.windows != WindowKeys::None)
    readWindows(reader, family, config, sequenceOf(config, options));
  if (family.ropes)
    readRopes(reader, family, config);
  if (family.form.latent && !config.ropes.empty())
    config.scale *= config.ropes[0].ofScores;
}

/// Checks that the model supports several documents in a sequence, each ended by token `end`.
void checkDocuments(ConfigReader &reader, int64_t end, const ModelConfig &config) {
  if (end < 0 || end >= config.vocab)
    reader.fail() << "--documents=" << end << " is not a token of the vocabulary of " << config.vocab;
  if (!config.family->form.causal)
    reader.fail() << "--documents is not supported for '" << config.type
                  << "', whose tokens also attend to later tokens";
  if (config.family->encoder)
    reader.fail() << "--documents is not supported for '" << config.type << "', which has an encoder";
}

/// Sets `config.ties`, which a run also gets.
void readTies(ConfigReader &reader, ModelConfig &config) {
  const LayerForm &form = config.family->form;
  if (config.tied)
    config.ties.emplace_back((form.head + ".weight").str(), (form.prefix + form.tokens + ".weight").str());
  for (auto [copy, original] : config.family->copies)
    config.ties.emplace_back(copy, original);
  for (const auto &[copy, original] : config.ties)
    reader.isTied(copy, original);
}

/// Refuses options of transformers that no family supports. If `experts` is true, the config belongs to a family with
/// experts, so the numbers of experts are allowed.
void refuseOthers(ConfigReader &reader, bool experts) {
  reader.onlyFlag("is_causal", true);
  reader.onlyFlag("torchscript", false, KeyRole::Aside); // would untie a tied head
  reader.onlyFlag("return_dict", true, KeyRole::Aside);  // transformers 5 fails with another value
  if (const llvm::json::Value *heads = reader.raw("pruned_heads"))
    if (const llvm::json::Object *object = heads->getAsObject(); !object || !object->empty())
      reader.fail() << "'pruned_heads' = " << ConfigReader::show(*heads) << " is not supported";
  for (const char *key : {"quantization_config", "num_local_experts", "num_experts"})
    if (reader.raw(key) && (!experts || StringRef(key) == "quantization_config"))
      reader.fail() << "'" << key << "' is not supported"
                    << (StringRef(key) == "quantization_config" ? "; save the weights in f32 or bf16 first" : "");
}

} // namespace

int64_t pc::sequenceOf(const ModelConfig &config, const ImportOptions &options) {
  int64_t most = config.positions > 0 ? std::min(config.positions, defaultSequence) : defaultSequence;
  return options.sequence.value_or(most);
}

/// Reads the text as JSON, finds the family by its model type, reads the family's keys, and then checks the options and
/// the sizes.
FailureOr<ModelConfig> pc::parseConfig(StringRef text, const ImportOptions &options,
                                       function_ref<InFlightDiagnostic()> emitError,
                                       function_ref<InFlightDiagnostic()> emitWarning) {
  auto parsed = readJson(text);
  if (!parsed) {
    emitError() << "is not valid JSON: " << llvm::toString(parsed.takeError())
                << "; if the file was cut off, copy or download it again";
    return failure();
  }
  const llvm::json::Object *object = parsed->getAsObject();
  if (!object) {
    emitError() << "expected a JSON object";
    return failure();
  }
  ConfigReader reader(*object, emitError);
  ModelConfig config;
  config.type = reader.text("model_type", "");
  config.text = text;
  if (config.type.empty()) {
    if (!reader.failed)
      emitError() << "'model_type' is missing";
    return failure();
  }
  auto isOfType = [&](const Family &family) { return family.type == config.type; };
  if (config.type == "gpt2") {
    readGPT2(reader, config, options);
  } else if (config.type == "t5") {
    readT5(reader, config, options);
  } else if (const Family *family = llvm::find_if(families(), isOfType); family != families().end()) {
    readFamily(reader, *family, config, options);
  } else {
    InFlightDiagnostic diagnostic = reader.fail() << "architecture '" << escaped(config.type)
                                                  << "' is not supported; supported architectures: gpt2";
    for (const Family &known : families())
      diagnostic << ", " << known.type;
    diagnostic << ", t5";
  }
  // Options of the import are checked after the model is known, and only if it could be read.
  bool isTable = config.family && !config.family->form.positions.empty();
  if (!reader.failed && isTable && sequenceOf(config, options) > config.positions)
    reader.fail() << "a sequence of " << *options.sequence << " tokens is longer than '"
                  << config.family->keys.positions << "' = " << config.positions;
  if (options.targets && config.family && !config.family->encoder)
    reader.fail() << "--target-seq applies to models with an encoder only; '" << config.type
                  << "' has one target per token";
  if (options.expertCapacity && !reader.failed && (!config.experts || *options.expertCapacity < 1))
    reader.fail() << "--expert-capacity=" << *options.expertCapacity
                  << (config.experts ? " must be at least 1" : " applies to mixtures of experts only");
  config.capacity = options.expertCapacity.value_or(0);
  if (options.documents && config.family)
    checkDocuments(reader, *options.documents, config);
  refuseOthers(reader, config.experts);
  if (reader.failed)
    return failure();
  readTies(reader, config);
  // Sizes are limited before a model is built.
  constexpr int64_t mostLayers = 100000;
  if (config.layers > mostLayers || config.encoderLayers > mostLayers || config.embed > (1 << 24) ||
      config.ffn > (1 << 26) || config.headDim > mostHeadDim || parametersOf(config) > mostParameters) {
    emitError() << "the sizes in config.json are too large: " << config.layers << " layers of width " << config.embed
                << ", hidden " << config.ffn << ", " << config.heads << " heads of " << config.headDim
                << ", vocabulary " << config.vocab;
    return failure();
  }
  // Keys that transformers also ignores are named in a warning, so that users do not rely on them.
  for (const char *key : config.family->unused)
    if (const llvm::json::Value *value = reader.raw(key))
      emitWarning() << "'" << key << "' = " << ConfigReader::show(*value) << " is ignored, as in transformers for '"
                    << config.type << "'";
  for (const std::string &key : reader.unused())
    if (!llvm::is_contained(harmless, StringRef(key)))
      emitWarning() << "the key '" << escaped(key) << "' is unknown and was ignored";
  llvm::raw_string_ostream(config.means) << llvm::json::Value(reader.takeMeans());
  return config;
}
