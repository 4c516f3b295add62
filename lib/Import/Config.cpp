//===- Config.cpp - config.json of the supported families -----------------------------===//
// Every key of a config.json is used, known not to change the numbers, refused by its name, or warned about.
//===-----------------------------------------------------------------------------===//
#include "Config.h"
#include "ConfigReader.h"
#include "pc/IR/Diagnostics.h"
#include "pc/IR/ReadJson.h"

#include <cmath>

using namespace mlir;
using namespace pc;

namespace {

/// Keys that do not change what a training step computes.
constexpr llvm::StringRef harmless[] = {
#define HARMLESS(KEY, VALUE) KEY,
#include "HarmlessKeys.inc"
};

void readActivation(ConfigReader &reader, ConfigKey key, llvm::StringRef absent, ModelConfig &config) {
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
                << "\" is not supported (gelu, gelu_new, gelu_pytorch_tanh, silu, relu)";
}

/// The probability of dropout, in 65536ths. `instead`: that of the flag, if it is given.
int64_t readDropout(ConfigReader &reader, ConfigKey key, double absent, std::optional<double> instead) {
  double p = reader.real(key, absent, KeyRole::Aside);
  if (!reader.failed && !(p >= 0 && p < 1))
    reader.fail() << reader.name(key) << " = " << p << " must be at least 0 and below 1";
  auto parts = static_cast<int64_t>(std::nearbyint(65536 * instead.value_or(p)));
  if (!reader.failed && parts == 65536)
    reader.fail() << reader.name(key) << ": less than 1 in 65536 elements would be kept";
  return parts;
}

void readGPT2(ConfigReader &reader, ModelConfig &config, const ImportOptions &options) {
  config.vocab = reader.size("vocab_size");
  config.positions = reader.size("n_positions");
  config.embed = reader.size("n_embd");
  config.layers = reader.size("n_layer");
  config.heads = config.kvHeads = reader.size("n_head");
  config.ffn = reader.size("n_inner", 4 * config.embed);
  config.normEps = reader.positive("layer_norm_epsilon", 1e-5);
  config.initStd = reader.positive("initializer_range", 0.02, KeyRole::Aside);
  config.tied = reader.flag("tie_word_embeddings", true);
  config.scaleScores = reader.flag("scale_attn_weights", true);
  config.scaleByLayer = reader.flag("scale_attn_by_inverse_layer_idx", false);
  config.qkvBias = config.outBias = config.mlpBias = true;
  readActivation(reader, "activation_function", "gelu_new", config);
  config.embedDrop = readDropout(reader, "embd_pdrop", 0.1, options.dropout);
  config.attentionDrop = readDropout(reader, "attn_pdrop", 0.1, options.dropout);
  config.residualDrop = readDropout(reader, "resid_pdrop", 0.1, options.dropout);
  reader.onlyFlag("add_cross_attention", false);
  reader.raw("pad_token_id"); // ignored: GPT-2's embedding table has no padding row
  if (!reader.failed && config.embed % config.heads)
    reader.fail() << "'n_embd' = " << config.embed << " is not divisible by 'n_head' = " << config.heads;
  config.headDim = config.embed / config.heads;
}

/// Limits beyond which a config is taken to be a mistake.
constexpr int64_t mostHeadDim = 1 << 16;
constexpr double mostParameters = 1e15;

/// About how many parameters the model has; in floating point, which does not overflow.
double parametersOf(const ModelConfig &config) {
  double heads = double(config.headDim) * double(config.heads + config.kvHeads);
  return double(config.embed) *
         (double(config.layers) * (2 * heads + 3 * double(config.ffn)) + 2 * double(config.vocab));
}

/// What sets a family of decoders with rotary embeddings, RMS norms and gated MLPs apart from the others: its row.
struct LlamaLike {
  llvm::StringRef type;
  int64_t positions;       ///< max_position_embeddings where it is absent
  int64_t kvHeads;         ///< num_key_value_heads where it is absent; 0: as many as query heads
  int64_t headDim = 0;     ///< head_dim where it is absent; 0: hidden_size / num_attention_heads
  bool biasOfQKV = false;  ///< of queries, keys and values, always
  bool biasKey = false;    ///< attention_bias: of all projections of attention
  bool mlpBiasKey = false; ///< mlp_bias, and pretraining_tp beside it
  bool qkNorm = false;     ///< RMS norms of every head's queries and keys
  bool fused = false;      ///< qkv_proj and gate_up_proj, and resid_pdrop
  enum { NoWindow, AlwaysWindow, SwitchedWindow } window = NoWindow; ///< sliding_window; or if use_sliding_window
  int64_t usualWindow = 4096;                                        ///< sliding_window where it is absent; 0: none
  double normEps = 1e-6;                                             ///< rms_norm_eps where it is absent
  std::optional<int64_t> padding = std::nullopt;                     ///< pad_token_id where it is absent
};

constexpr LlamaLike llamaLike[] = {
    {.type = "llama", .positions = 2048, .kvHeads = 0, .biasKey = true, .mlpBiasKey = true},
    {.type = "mistral", .positions = 131072, .kvHeads = 8, .window = LlamaLike::AlwaysWindow},
    {.type = "qwen2", .positions = 32768, .kvHeads = 32, .biasOfQKV = true, .window = LlamaLike::SwitchedWindow},
    {.type = "qwen3",
     .positions = 32768,
     .kvHeads = 32,
     .headDim = 128,
     .biasKey = true,
     .qkNorm = true,
     .window = LlamaLike::SwitchedWindow},
    {.type = "phi3",
     .positions = 4096,
     .kvHeads = 0,
     .fused = true,
     .window = LlamaLike::AlwaysWindow,
     .usualWindow = 0,
     .normEps = 1e-5,
     .padding = 32000},
};

/// The values of the keys of rotary embeddings.
struct Rope {
  std::string type;
  double theta = 10000, factor = 1, low = 1, high = 4, original = 8192;
};

/// The places where a key of rotary embeddings can stand: transformers 4 writes 'rope_scaling' and 'rope_theta',
/// transformers 5 'rope_parameters'.
#define ROPE(KEY) "rope_scaling." KEY, "rope_parameters." KEY

/// Checks that the objects of rotary embeddings are flat and, if both are given, equal: transformers reads the first
/// one only.
bool checkRopeObjects(ConfigReader &reader) {
  const llvm::json::Object *first = nullptr;
  for (const char *key : {"rope_scaling", "rope_parameters"}) {
    const llvm::json::Value *value = reader.raw(key);
    const llvm::json::Object *object = value ? value->getAsObject() : nullptr;
    if (value && !object) {
      reader.fail() << "'" << key << "' must be an object";
      return false;
    }
    if (!object || object->empty())
      continue;
    for (const auto &entry : *object)
      if (entry.second.getAsObject()) {
        reader.fail() << "'" << key << "." << llvm::StringRef(entry.first)
                      << "' is an object: other rotary embeddings for some layers are not supported";
        return false;
      }
    if (first && *first != *object) {
      reader.fail() << "'rope_scaling' and 'rope_parameters' differ; remove the one that is not meant";
      return false;
    }
    first = object;
  }
  return true;
}

/// `usualPositions` is the 'max_position_embeddings' of a config without the key.
Rope readRopeKeys(ConfigReader &reader, int64_t usualPositions) {
  Rope rope;
  rope.theta = reader.positive({ROPE("rope_theta"), "rope_theta"}, 10000.0);
  ConfigKey type{ROPE("rope_type"), ROPE("type")};
  rope.type = reader.text(type, "default");
  if (rope.type != "default" && rope.type != "linear" && rope.type != "llama3")
    reader.fail() << "rope type \"" << escaped(rope.type) << "\" in " << reader.name(type)
                  << " is not supported (default, linear, llama3)";
  reader.onlyOne({ROPE("partial_rotary_factor"), "partial_rotary_factor"});
  if (rope.type == "linear" || rope.type == "llama3")
    rope.factor = reader.positive({ROPE("factor")}, std::nullopt);
  if (rope.type == "llama3") {
    rope.low = reader.positive({ROPE("low_freq_factor")}, std::nullopt);
    rope.high = reader.positive({ROPE("high_freq_factor")}, std::nullopt);
    rope.original = reader.positive(
        {"original_max_position_embeddings", ROPE("original_max_position_embeddings"), "max_position_embeddings"},
        usualPositions);
    if (rope.high <= rope.low)
      reader.fail() << "'high_freq_factor' must be larger than 'low_freq_factor'";
  }
  return rope;
}
#undef ROPE

/// Inverse frequencies of rotary embeddings, in f32 as transformers computes them.
void readRope(ConfigReader &reader, ModelConfig &config, int64_t usualPositions) {
  if (!checkRopeObjects(reader))
    return;
  Rope rope = readRopeKeys(reader, usualPositions);
  if (reader.failed)
    return;
  if (config.headDim % 2) {
    reader.fail() << "head size " << config.headDim << " is odd; rotary embeddings need pairs";
    return;
  }
  if (config.headDim > mostHeadDim)
    return; // parseConfig refuses it; do not build its table
  for (int64_t i = 0; i < config.headDim / 2; ++i) {
    float frequency = 1.0f / std::pow(static_cast<float>(rope.theta), static_cast<float>(2 * i) / config.headDim);
    if (rope.type == "linear") {
      frequency /= static_cast<float>(rope.factor);
    } else if (rope.type == "llama3") {
      double wavelength = 2 * M_PI / frequency;
      if (wavelength > rope.original / rope.low) {
        frequency /= static_cast<float>(rope.factor);
      } else if (wavelength >= rope.original / rope.high) {
        double smooth = (rope.original / wavelength - rope.low) / (rope.high - rope.low);
        frequency = static_cast<float>((1 - smooth) * frequency / rope.factor + smooth * frequency);
      }
    }
    if (!std::isfinite(frequency)) {
      reader.fail() << "'rope_theta' and the scaling of rotary embeddings make frequencies that are no numbers in f32";
      return;
    }
    config.inverseFrequencies.push_back(frequency);
  }
}

/// A sliding window changes nothing if it is no shorter than the sequence; a shorter one is refused.
void readWindow(ConfigReader &reader, const LlamaLike &family, int64_t sequence) {
  bool always = family.window == LlamaLike::AlwaysWindow;
  bool used = always || reader.flag("use_sliding_window", false, KeyRole::Aside);
  // Without the key the window has the usual size; a null key means that there is none.
  const int64_t usual = family.usualWindow;
  bool none = !reader.has("sliding_window") && (reader.isGiven("sliding_window") || !usual);
  int64_t window = none ? 0 : reader.size("sliding_window", usual, KeyRole::Aside);
  const llvm::json::Value *types = reader.raw("layer_types");
  const llvm::json::Array *array = types ? types->getAsArray() : nullptr;
  for (const llvm::json::Value &type : array ? *array : types ? llvm::json::Array{*types} : llvm::json::Array{}) {
    auto name = type.getAsString();
    if (name && *name == "sliding_attention" && window)
      used = true;
    else if (!name || *name != "full_attention") {
      reader.fail() << "'layer_types' holds " << ConfigReader::show(type) << ", which is not supported";
      return;
    }
  }
  if (used && window && window < sequence)
    reader.fail() << "'sliding_window' = " << window << " is shorter than the sequence of " << sequence
                  << " tokens, which is not supported; use --seq " << window << " or less";
  if (used) {
    std::vector<llvm::json::Value> windows{nullptr};
    if (window)
      windows.emplace_back(window);
    if (usual >= sequence && window != usual)
      windows.emplace_back(usual);
    reader.means("sliding_window", std::move(windows), usual >= sequence ? llvm::json::Value(usual) : nullptr);
  }
  if (always)
    return;
  std::vector<llvm::json::Value> flags{false};
  if (used)
    flags.emplace_back(true);
  reader.means("use_sliding_window", std::move(flags), false);
}

/// Key/value heads: null means as many as query heads.
void readKVHeads(ConfigReader &reader, const LlamaLike &family, ModelConfig &config) {
  const char *key = "num_key_value_heads";
  int64_t absent = family.kvHeads ? family.kvHeads : config.heads;
  bool null = reader.isGiven(key) && !reader.has(key);
  config.kvHeads = null ? config.heads : reader.size(key, absent, KeyRole::Aside);
  if (null)
    reader.means(key, {config.kvHeads, nullptr}, nullptr);
  else
    reader.means(key, {config.kvHeads}, absent);
  if (!reader.failed && config.heads % config.kvHeads)
    reader.fail() << "'num_attention_heads' = " << config.heads
                  << " is not divisible by 'num_key_value_heads' = " << config.kvHeads;
}

/// The padding row of the embedding, which gets no gradient; as in nn.Embedding, negative rows count from the end.
/// `usual` is the row of a config without the key; null is no row.
void readPadding(ConfigReader &reader, std::optional<int64_t> usual, ModelConfig &config) {
  const char *key = "pad_token_id";
  llvm::json::Value absent = usual ? llvm::json::Value(*usual) : nullptr;
  const llvm::json::Value *value = reader.raw(key);
  if (!value && usual && !reader.isGiven(key))
    value = &absent;
  if (!value) {
    reader.means(key, {nullptr}, absent);
    return;
  }
  auto id = value->getAsInteger();
  if (!id || *id < -config.vocab || *id >= config.vocab) {
    reader.fail() << "'" << key << "' must be null or a row of the vocabulary of " << config.vocab << ", got "
                  << ConfigReader::show(*value);
    return;
  }
  config.padding = *id < 0 ? *id + config.vocab : *id;
  reader.means(key, {config.padding, config.padding - config.vocab}, absent);
}

void readLlamaLike(ConfigReader &reader, const LlamaLike &family, ModelConfig &config, const ImportOptions &options) {
  config.vocab = reader.size("vocab_size");
  config.embed = reader.size("hidden_size");
  config.ffn = reader.size("intermediate_size");
  config.layers = reader.size("num_hidden_layers");
  config.heads = reader.size("num_attention_heads");
  readKVHeads(reader, family, config);
  config.positions = reader.size("max_position_embeddings", family.positions, KeyRole::Aside);
  config.normEps = reader.positive("rms_norm_eps", family.normEps);
  config.initStd = reader.positive("initializer_range", 0.02, KeyRole::Aside);
  config.tied = reader.flag("tie_word_embeddings", false);
  readActivation(reader, "hidden_act", "silu", config);
  readPadding(reader, family.padding, config);
  config.attentionDrop = readDropout(reader, "attention_dropout", 0, options.dropout);
  if (!reader.failed && !reader.has("head_dim") && !family.headDim && config.embed % config.heads)
    reader.fail() << "'hidden_size' = " << config.embed
                  << " is not divisible by 'num_attention_heads' = " << config.heads;
  config.headDim =
      reader.size("head_dim", family.headDim ? family.headDim : std::max<int64_t>(1, config.embed / config.heads));
  config.qkvBias = family.biasOfQKV;
  if (family.biasKey)
    config.qkvBias = config.outBias = reader.flag("attention_bias", false);
  if (family.mlpBiasKey) {
    config.mlpBias = reader.flag("mlp_bias", false);
    if (int64_t tp = reader.size("pretraining_tp", 1, KeyRole::Aside); tp != 1)
      reader.fail() << "'pretraining_tp' = " << tp << " is not supported; it only reorders sums, set it to 1";
  }
  config.qkNorm = family.qkNorm;
  config.fused = family.fused;
  if (family.fused) {
    config.residualDrop = readDropout(reader, "resid_pdrop", 0, options.dropout);
    // transformers reads the last of these for rotary embeddings of type longrope, the others nowhere.
    for (const char *key : {"embd_pdrop", "attention_bias", "original_max_position_embeddings"})
      reader.raw(key);
  }
  if (family.window != LlamaLike::NoWindow)
    readWindow(reader, family, options.sequence);
  readRope(reader, config, family.positions);
}

/// Refuses options of transformers that are not supported for any family.
void refuseOthers(ConfigReader &reader) {
  reader.onlyFlag("is_causal", true);
  reader.onlyFlag("torchscript", false, KeyRole::Aside); // unties a tied head
  reader.onlyFlag("return_dict", true, KeyRole::Aside);  // transformers 5 does not run
  if (const llvm::json::Value *heads = reader.raw("pruned_heads"))
    if (const llvm::json::Object *object = heads->getAsObject(); !object || !object->empty())
      reader.fail() << "'pruned_heads' = " << ConfigReader::show(*heads) << " is not supported";
  for (const char *key : {"quantization_config", "num_local_experts", "num_experts"})
    if (reader.raw(key))
      reader.fail() << "'" << key << "' is not supported";
}

} // namespace

FailureOr<ModelConfig> pc::parseConfig(StringRef text, const ImportOptions &options,
                                       function_ref<InFlightDiagnostic()> emitError,
                                       function_ref<InFlightDiagnostic()> emitWarning) {
  auto parsed = readJson(text);
  if (!parsed) {
    emitError() << "not JSON: " << llvm::toString(parsed.takeError());
    return failure();
  }
  const llvm::json::Object *object = parsed->getAsObject();
  if (!object) {
    emitError() << "expected an object";
    return failure();
  }
  ConfigReader reader(*object, emitError);
  ModelConfig config;
  config.type = reader.text("model_type", "");
  llvm::raw_string_ostream(config.text) << *parsed;
  if (config.type.empty()) {
    if (!reader.failed)
      emitError() << "'model_type' is missing";
    return failure();
  }
  auto isOfType = [&](const LlamaLike &family) { return family.type == config.type; };
  if (config.type == "gpt2") {
    readGPT2(reader, config, options);
    if (!reader.failed && options.sequence > config.positions)
      reader.fail() << "a sequence of " << options.sequence
                    << " tokens is longer than 'n_positions' = " << config.positions;
  } else if (const LlamaLike *family = llvm::find_if(llamaLike, isOfType); family != std::end(llamaLike)) {
    readLlamaLike(reader, *family, config, options);
  } else {
    InFlightDiagnostic diagnostic = reader.fail()
                                    << "architecture '" << escaped(config.type) << "' is not supported (gpt2";
    for (const LlamaLike &known : llamaLike)
      diagnostic << ", " << known.type;
    diagnostic << ")";
  }
  refuseOthers(reader);
  if (reader.failed)
    return failure();
  constexpr int64_t mostLayers = 100000;
  if (config.layers > mostLayers || config.embed > (1 << 24) || config.ffn > (1 << 26) ||
      config.headDim > mostHeadDim || parametersOf(config) > mostParameters) {
    emitError() << "absurd size: " << config.layers << " layers of width " << config.embed << ", hidden " << config.ffn
                << ", " << config.heads << " heads of " << config.headDim << ", vocabulary " << config.vocab;
    return failure();
  }
  for (const std::string &key : reader.unused())
    if (!llvm::is_contained(harmless, StringRef(key)))
      emitWarning() << "key '" << escaped(key) << "' is not known and was not used";
  llvm::raw_string_ostream(config.means) << llvm::json::Value(reader.takeMeans());
  return config;
}
