//===- Config.cpp - config.json of the supported families -----------------------------===//
// Every key is either used, known not to change the numbers, refused with its name, or warned about.
//===-----------------------------------------------------------------------------===//
#include "Config.h"
#include "ReadJson.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/StringSwitch.h"
#include <cmath>

using namespace mlir;
using namespace pc;

namespace {

/// Keys that do not change what a training step computes.
constexpr const char *harmless[] = {
    "architectures", "model_type", "transformers_version", "torch_dtype", "dtype", "_name_or_path", "use_cache",
    "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id", "task_specific_params", "_attn_implementation",
    "attn_implementation", "_attn_implementation_autoset", "summary_type", "summary_use_proj", "summary_activation", "summary_first_dropout",
    "summary_proj_to_labels", "summary_num_labels", "return_dict", "output_hidden_states", "output_attentions", "id2label",
    "label2id", "problem_type", "is_decoder", "is_encoder_decoder", "chunk_size_feed_forward", "tokenizer_class", "prefix",
    "finetuning_task", "torchscript", "tf_legacy_loss", "use_bfloat16", "gradient_checkpointing", "n_ctx", "cross_attention_hidden_size",
    "tie_encoder_decoder", "reorder_and_upcast_attn", "max_window_layers", "auto_map", "keys_to_ignore_at_inference",
    "base_model_tp_plan", "base_model_pp_plan", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty",
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "max_length", "min_length",
    "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty", "forced_bos_token_id", "forced_eos_token_id",
    "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens", "output_scores",
    "return_dict_in_generate", "pruned_heads_none"};

class Reader {
public:
  Reader(const llvm::json::Object &object, llvm::function_ref<InFlightDiagnostic()> error) : object(object), error(error) {}

  bool failed = false;

  /// A positive integer below 2^31; `fallback` < 0 makes the key required.
  int64_t size(llvm::StringRef key, int64_t fallback = -1) {
    used.insert(key);
    const llvm::json::Value *value = object.get(key);
    if (!value || value->kind() == llvm::json::Value::Null) {
      if (fallback < 0)
        fail() << "'" << key << "' is missing";
      return std::max<int64_t>(fallback, 1);
    }
    auto number = value->getAsInteger();
    if (!number || *number < 1 || *number >= (int64_t(1) << 31)) {
      fail() << "'" << key << "' must be a positive integer, got " << show(*value);
      return 1;
    }
    return *number;
  }

  double real(llvm::StringRef key, double fallback) {
    used.insert(key);
    const llvm::json::Value *value = object.get(key);
    if (!value || value->kind() == llvm::json::Value::Null)
      return fallback;
    auto number = value->getAsNumber();
    if (!number || !std::isfinite(*number)) {
      fail() << "'" << key << "' must be a finite number, got " << show(*value);
      return fallback;
    }
    return *number;
  }

  double positive(llvm::StringRef key, double fallback) {
    double value = real(key, fallback);
    if (value <= 0)
      fail() << "'" << key << "' must be positive, got " << value;
    return value;
  }

  bool flag(llvm::StringRef key, bool fallback) {
    used.insert(key);
    const llvm::json::Value *value = object.get(key);
    if (!value || value->kind() == llvm::json::Value::Null)
      return fallback;
    if (auto b = value->getAsBoolean())
      return *b;
    fail() << "'" << key << "' must be true or false, got " << show(*value);
    return fallback;
  }

  std::string text(llvm::StringRef key, llvm::StringRef fallback) {
    used.insert(key);
    const llvm::json::Value *value = object.get(key);
    if (!value || value->kind() == llvm::json::Value::Null)
      return fallback.str();
    if (auto s = value->getAsString())
      return s->str();
    fail() << "'" << key << "' must be a string, got " << show(*value);
    return fallback.str();
  }

  /// An option that would change the numbers: only `allowed` is accepted.
  void onlyZero(llvm::StringRef key, llvm::StringRef hint) {
    if (real(key, 0.0) != 0.0)
      fail() << "'" << key << "' is " << show(*object.get(key)) << ", which is not supported; " << hint;
  }
  void onlyFlag(llvm::StringRef key, bool allowed) {
    if (flag(key, allowed) != allowed)
      fail() << "'" << key << "' = " << (allowed ? "false" : "true") << " is not supported";
  }

  const llvm::json::Value *raw(llvm::StringRef key) {
    used.insert(key);
    const llvm::json::Value *value = object.get(key);
    return value && value->kind() != llvm::json::Value::Null ? value : nullptr;
  }
  bool has(llvm::StringRef key) const {
    const llvm::json::Value *value = object.get(key);
    return value && value->kind() != llvm::json::Value::Null;
  }

  InFlightDiagnostic fail() {
    failed = true;
    return error();
  }

  void warnUnused(llvm::function_ref<InFlightDiagnostic()> warning) {
    for (const char *key : harmless)
      used.insert(key);
    llvm::SmallVector<llvm::StringRef> unknown;
    for (const auto &entry : object)
      if (!used.contains(entry.first))
        unknown.push_back(entry.first);
    llvm::sort(unknown);
    for (llvm::StringRef key : unknown)
      warning() << "key '" << key << "' is not known and was not used";
  }

  static std::string show(const llvm::json::Value &value) {
    std::string s;
    llvm::raw_string_ostream(s) << value;
    return s.size() > 40 ? s.substr(0, 40) + "..." : s;
  }

private:
  const llvm::json::Object &object;
  llvm::function_ref<InFlightDiagnostic()> error;
  llvm::StringSet<> used;
};

std::optional<ActivationKind> activationNamed(llvm::StringRef name) {
  return llvm::StringSwitch<std::optional<ActivationKind>>(name)
      .Cases({"gelu_new", "gelu_pytorch_tanh", "gelu_fast"}, ActivationKind::GeluTanh)
      .Case("gelu", ActivationKind::Gelu)
      .Cases({"silu", "swish"}, ActivationKind::Silu)
      .Case("relu", ActivationKind::Relu)
      .Default(std::nullopt);
}

void readActivation(Reader &reader, llvm::StringRef key, llvm::StringRef fallback, ModelConfig &config) {
  std::string name = reader.text(key, fallback);
  if (auto kind = activationNamed(name))
    config.activation = *kind;
  else
    reader.fail() << "'" << key << "' = \"" << name << "\" is not supported (gelu, gelu_new, gelu_pytorch_tanh, silu, relu)";
}

void readGPT2(Reader &reader, ModelConfig &config) {
  config.vocab = reader.size("vocab_size");
  config.positions = reader.size("n_positions");
  config.embed = reader.size("n_embd");
  config.layers = reader.size("n_layer");
  config.heads = config.kvHeads = reader.size("n_head");
  config.ffn = reader.size("n_inner", 4 * config.embed);
  config.normEps = reader.positive("layer_norm_epsilon", 1e-5);
  config.initStd = reader.positive("initializer_range", 0.02);
  config.tied = reader.flag("tie_word_embeddings", true);
  config.scaleScores = reader.flag("scale_attn_weights", true);
  config.scaleByLayer = reader.flag("scale_attn_by_inverse_layer_idx", false);
  config.qkvBias = config.outBias = config.mlpBias = true;
  readActivation(reader, "activation_function", "gelu_new", config);
  for (const char *key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"})
    reader.onlyZero(key, "set it to 0 to train without dropout");
  reader.onlyFlag("add_cross_attention", false);
  if (!reader.failed && config.embed % config.heads)
    reader.fail() << "'n_embd' = " << config.embed << " is not divisible by 'n_head' = " << config.heads;
  config.headDim = config.embed / config.heads;
}

/// Larger heads are a mistake, and so are models of more parameters.
constexpr int64_t mostHeadDim = 1 << 16;
constexpr double mostParameters = 1e15;

/// About how many, counted where nothing overflows.
double parametersOf(const ModelConfig &config) {
  double heads = double(config.headDim) * double(config.heads + config.kvHeads);
  return double(config.embed) *
         (double(config.layers) * (2 * heads + 3 * double(config.ffn)) + 2 * double(config.vocab));
}

/// Inverse frequencies of rotary embeddings, in f32 as transformers computes them.
void readRope(Reader &reader, ModelConfig &config) {
  double theta = reader.positive("rope_theta", 10000.0);
  const llvm::json::Value *scaling = reader.raw("rope_parameters");
  const char *key = "rope_parameters";
  if (const llvm::json::Value *old = reader.raw("rope_scaling")) {
    scaling = old;
    key = "rope_scaling";
  }
  std::string type = "default";
  double factor = 1, low = 1, high = 4, original = 8192;
  if (scaling) {
    const llvm::json::Object *object = scaling->getAsObject();
    if (!object) {
      reader.fail() << "'" << key << "' must be an object";
      return;
    }
    auto failInside = [&] { return reader.fail() << "in '" << key << "': "; };
    Reader inner(*object, failInside);
    theta = inner.positive("rope_theta", theta);
    type = inner.text("rope_type", inner.text("type", "default"));
    inner.onlyFlag("truncate", true);
    double partial = inner.real("partial_rotary_factor", 1.0);
    if (partial != 1.0)
      inner.fail() << "'partial_rotary_factor' = " << partial << " is not supported";
    if (type == "linear" || type == "llama3") {
      if (!inner.has("factor"))
        inner.fail() << "'factor' is missing";
      factor = inner.positive("factor", 1.0);
    }
    if (type == "llama3") {
      low = inner.positive("low_freq_factor", 1.0);
      high = inner.positive("high_freq_factor", 4.0);
      original = inner.positive("original_max_position_embeddings", 8192.0);
      if (high <= low)
        inner.fail() << "'high_freq_factor' must be larger than 'low_freq_factor'";
    }
  }
  if (type != "default" && type != "linear" && type != "llama3") {
    reader.fail() << "rope type \"" << type << "\" in '" << key << "' is not supported (default, linear, llama3)";
    return;
  }
  double partial = reader.real("partial_rotary_factor", 1.0);
  if (partial != 1.0)
    reader.fail() << "'partial_rotary_factor' = " << partial << " is not supported";
  if (config.headDim % 2) {
    reader.fail() << "head size " << config.headDim << " is odd; rotary embeddings need pairs";
    return;
  }
  if (config.headDim > mostHeadDim)
    return; // refused below, without its table
  for (int64_t i = 0; i < config.headDim / 2; ++i) {
    float frequency = 1.0f / std::pow(static_cast<float>(theta), static_cast<float>(2 * i) / config.headDim);
    if (type == "linear") {
      frequency /= static_cast<float>(factor);
    } else if (type == "llama3") {
      double wavelength = 2 * M_PI / frequency;
      if (wavelength > original / low) {
        frequency /= static_cast<float>(factor);
      } else if (wavelength >= original / high) {
        double smooth = (original / wavelength - low) / (high - low);
        frequency = static_cast<float>((1 - smooth) * frequency / factor + smooth * frequency);
      }
    }
    if (!std::isfinite(frequency)) {
      reader.fail() << "'rope_theta' and the scaling of '" << key << "' make frequencies that are no numbers in f32";
      return;
    }
    config.inverseFrequencies.push_back(frequency);
  }
}

/// A window that a sequence of `sequence` tokens never leaves changes nothing; any other is refused.
void readWindow(Reader &reader, const ModelConfig &config, int64_t sequence) {
  bool used = config.type == "mistral" || reader.flag("use_sliding_window", false);
  int64_t window = reader.has("sliding_window") ? reader.size("sliding_window", 1) : 0;
  reader.raw("sliding_window");
  if (const llvm::json::Value *types = reader.raw("layer_types")) {
    const llvm::json::Array *array = types->getAsArray();
    for (const llvm::json::Value &type : array ? *array : llvm::json::Array{nullptr}) {
      auto name = type.getAsString();
      if (name && *name == "sliding_attention" && window)
        used = true;
      else if (!name || *name != "full_attention") {
        reader.fail() << "'layer_types' holds " << Reader::show(type) << ", which is not supported";
        return;
      }
    }
  }
  if (used && window && window < sequence)
    reader.fail() << "'sliding_window' = " << window << " is shorter than the sequence of " << sequence
                  << " tokens, which is not supported; use --seq " << window << " or less";
}

void readLlamaLike(Reader &reader, ModelConfig &config, int64_t sequence) {
  llvm::StringRef type = config.type;
  config.vocab = reader.size("vocab_size");
  config.embed = reader.size("hidden_size");
  config.ffn = reader.size("intermediate_size");
  config.layers = reader.size("num_hidden_layers");
  config.heads = reader.size("num_attention_heads");
  config.kvHeads = reader.size("num_key_value_heads", type == "mistral" ? 8 : type == "llama" ? config.heads : 32);
  config.positions = reader.size("max_position_embeddings", 1 << 30);
  config.normEps = reader.positive("rms_norm_eps", 1e-6);
  config.initStd = reader.positive("initializer_range", 0.02);
  config.tied = reader.flag("tie_word_embeddings", false);
  readActivation(reader, "hidden_act", "silu", config);
  reader.onlyZero("attention_dropout", "set it to 0 to train without dropout");
  if (!reader.failed && !reader.has("head_dim") && type != "qwen3" && config.embed % config.heads)
    reader.fail() << "'hidden_size' = " << config.embed << " is not divisible by 'num_attention_heads' = " << config.heads;
  config.headDim = reader.size("head_dim", type == "qwen3" ? 128 : std::max<int64_t>(1, config.embed / config.heads));
  if (!reader.failed && config.heads % config.kvHeads)
    reader.fail() << "'num_attention_heads' = " << config.heads << " is not divisible by 'num_key_value_heads' = "
                  << config.kvHeads;
  if (type == "llama") {
    config.qkvBias = config.outBias = reader.flag("attention_bias", false);
    config.mlpBias = reader.flag("mlp_bias", false);
    if (int64_t tp = reader.size("pretraining_tp", 1); tp != 1)
      reader.fail() << "'pretraining_tp' = " << tp << " is not supported; it only reorders sums, set it to 1";
  } else if (type == "qwen2") {
    config.qkvBias = true;
  } else if (type == "qwen3") {
    config.qkvBias = config.outBias = reader.flag("attention_bias", false);
    config.qkNorm = true;
  }
  if (type != "llama")
    readWindow(reader, config, sequence);
  readRope(reader, config);
}

} // namespace

FailureOr<ModelConfig> pc::parseConfig(StringRef text, int64_t sequence, function_ref<InFlightDiagnostic()> emitError,
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
  Reader reader(*object, emitError);
  ModelConfig config;
  config.type = reader.text("model_type", "");
  llvm::raw_string_ostream(config.text) << *parsed;
  if (config.type.empty()) {
    if (!reader.failed)
      emitError() << "'model_type' is missing";
    return failure();
  }
  if (config.type == "gpt2") {
    readGPT2(reader, config);
    if (!reader.failed && sequence > config.positions)
      reader.fail() << "a sequence of " << sequence << " tokens is longer than 'n_positions' = " << config.positions;
  } else if (llvm::is_contained({"llama", "mistral", "qwen2", "qwen3"}, config.type)) {
    readLlamaLike(reader, config, sequence);
  } else {
    reader.fail() << "architecture '" << config.type << "' is not supported (gpt2, llama, mistral, qwen2, qwen3)";
  }
  for (const char *key : {"quantization_config", "num_local_experts", "num_experts"})
    if (reader.raw(key))
      reader.fail() << "'" << key << "' is not supported";
  if (reader.failed)
    return failure();
  constexpr int64_t mostLayers = 100000;
  if (config.layers > mostLayers || config.embed > (1 << 24) || config.ffn > (1 << 26) ||
      config.headDim > mostHeadDim || parametersOf(config) > mostParameters) {
    emitError() << "absurd size: " << config.layers << " layers of width " << config.embed << ", hidden " << config.ffn
                << ", " << config.heads << " heads of " << config.headDim << ", vocabulary " << config.vocab;
    return failure();
  }
  reader.warnUnused(emitWarning);
  return config;
}
