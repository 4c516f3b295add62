//===- ConfigT5.cpp - config.json of T5 ----------------------------------------------------===//
// T5 has its own key names, an encoder and a decoder, buckets of relative positions instead of rotary embeddings, and
// no scale of scores. A separate function reads it, because the key table of a `Family` covers few of its keys.
//===-----------------------------------------------------------------------------===//
#include "ConfigSections.h"
#include "pc/Support/Diagnostics.h"

#include <cmath>

using namespace mlir;
using namespace pc;

/// The MLP: its activation, and whether it is gated. "gated-gelu" means gelu_new; newer files have two more keys with
/// the same meaning.
static bool readMlp(ConfigReader &reader, ModelConfig &config) {
  std::string name = reader.text("feed_forward_proj", "relu");
  StringRef activation = name;
  bool isGated = activation.consume_front("gated-");
  if (name == "gated-gelu")
    activation = "gelu_new";
  readActivation(reader, "dense_act_fn", activation, config);
  return reader.flag("is_gated_act", isGated);
}

/// Reads decoder_start_token_id, the token that comes before the first target. It must equal pad_token_id, which marks
/// targets that do not count in the loss.
static void readStart(ConfigReader &reader, ModelConfig &config) {
  auto token = [&](const char *key, std::optional<int64_t> absent) -> std::optional<int64_t> {
    const llvm::json::Value *value = reader.raw(key);
    if (!value && (!absent || reader.isGiven(key)))
      return std::nullopt;
    return value ? value->getAsInteger().value_or(-1) : *absent;
  };
  std::optional<int64_t> start = token("decoder_start_token_id", std::nullopt), padding = token("pad_token_id", 0);
  if (!start || *start < 0 || *start >= config.vocab) {
    reader.fail() << "'decoder_start_token_id' must be a token of the vocabulary of " << config.vocab;
    return;
  }
  if (padding != start)
    reader.fail() << "'pad_token_id' is supported only if it equals 'decoder_start_token_id' = " << *start;
  config.startToken = *start;
  reader.means("decoder_start_token_id", {*start}, nullptr);
  reader.means("pad_token_id", {*start}, 0, nullptr);
}

/// Reads the buckets of relative positions. In attention to earlier tokens the first half of the buckets have one
/// distance each; attention in both directions has half as many buckets for each direction.
static void readBuckets(ConfigReader &reader, ModelConfig &config) {
  config.buckets = reader.size("relative_attention_num_buckets", 32);
  config.farthest = reader.size("relative_attention_max_distance", 128);
  if (!reader.failed && (config.buckets < 4 || config.farthest <= config.buckets / 2))
    reader.fail() << "'relative_attention_num_buckets' = " << config.buckets
                  << " must be at least 4, and half of it less than 'relative_attention_max_distance' = "
                  << config.farthest;
}

/// Returns true if the input of the head is scaled; null means no.
static bool readScale(ConfigReader &reader, bool absent) {
  const char *key = "scale_decoder_outputs";
  bool isNull = reader.isGiven(key) && !reader.has(key), scales = reader.flag(key, absent && !isNull, KeyRole::Aside);
  reader.means(key, {scales}, absent, false);
  return scales;
}

/// The keys have older and newer names; both are accepted.
void pc::readT5(ConfigReader &reader, ModelConfig &config, const ImportOptions &options) {
  config.vocab = reader.size("vocab_size");
  config.embed = reader.size(ConfigKey{"d_model", "hidden_size"});
  config.headDim = reader.size(ConfigKey{"d_kv", "head_dim"}, 64);
  config.ffn = reader.size("d_ff");
  config.encoderLayers = reader.size(ConfigKey{"num_layers", "num_hidden_layers"});
  config.layers = reader.size("num_decoder_layers", std::max<int64_t>(1, config.encoderLayers));
  config.heads = config.kvHeads = reader.size(ConfigKey{"num_heads", "num_attention_heads"});
  config.normEps = reader.positive("layer_norm_epsilon", 1e-6);
  config.initStd = reader.positive("initializer_factor", 1.0, KeyRole::Aside);
  config.family = &t5Family(readMlp(reader, config));
  bool isTied = reader.flag("tie_word_embeddings", true), isScaled = readScale(reader, isTied);
  config.tied = isTied && isScaled;
  config.headScale = isScaled ? 1 / std::sqrt(double(config.embed)) : 1;
  if (isScaled && !isTied)
    reader.fail() << "'scale_decoder_outputs' = true together with 'tie_word_embeddings' = false is not supported";
  readBuckets(reader, config);
  readStart(reader, config);
  config.embedDrop = config.attentionDrop = config.residualDrop = config.ffnDrop = config.finalDrop =
      readDropout(reader, "dropout_rate", 0.1, options.dropout);
  for (const char *key : {"classifier_dropout", "n_positions", "output_past"})
    reader.raw(key); // ignored: keys of other heads and of early versions
}
