//===- ConfigExperts.cpp - Keys of mixtures of experts --------------------------------===//
// Reads the number of experts, the number per token, the layers that have them, their groups (DeepSeek V3), and the
// factor of the balancing loss. `Family::experts` names the keys. An empty key name means that the family has no such
// key.
//===-----------------------------------------------------------------------------===//
#include "ConfigSections.h"

using namespace mlir;
using namespace pc;
namespace json = llvm::json;

/// The number of layers at the beginning without experts.
static int64_t readFirst(ConfigReader &reader, StringRef key) {
  constexpr int64_t absent = 3;
  const json::Value *value = reader.raw(key);
  int64_t first = value ? value->getAsInteger().value_or(-1) : absent;
  if (first < 0)
    reader.fail() << "'" << key << "' = " << ConfigReader::show(*value) << " must be a number of layers";
  reader.means(key, {first}, absent);
  return std::max<int64_t>(first, 0);
}

/// Reads the number of groups of experts, and how many of the best groups are kept.
static void readGroups(ConfigReader &reader, const ExpertKeys &keys, ModelConfig &config) {
  constexpr int64_t usualGroups = 8, usualKept = 4;
  config.groups = reader.size(keys.groups, usualGroups);
  config.keptGroups = reader.size(keys.keptGroups, usualKept);
  if (reader.failed)
    return;
  int64_t each = config.experts / config.groups;
  if (config.experts % config.groups || each < 2)
    reader.fail() << "'" << keys.groups << "' = " << config.groups << " does not divide the " << config.experts
                  << " experts into equal groups of at least two";
  else if (config.keptGroups > config.groups)
    reader.fail() << "'" << keys.keptGroups << "' = " << config.keptGroups << " is more than '" << keys.groups
                  << "' = " << config.groups;
  else if (config.expertsPerToken > config.keptGroups * each)
    reader.fail() << "'num_experts_per_tok' = " << config.expertsPerToken << " is more than " << config.keptGroups
                  << " groups of " << each << " experts contain";
}

/// For each layer, whether it has experts.
static SmallVector<bool> layersWithExperts(ConfigReader &reader, const ExpertKeys &keys, int64_t layers) {
  SmallVector<bool> result(layers, true);
  int64_t every = keys.every.empty() ? 1 : reader.size(keys.every, 1);
  for (int64_t layer = 0; layer < layers; ++layer)
    result[layer] = (layer + 1) % every == 0;
  if (!keys.first.empty())
    std::fill_n(result.begin(), std::min(layers, readFirst(reader, keys.first)), false);
  if (keys.without.empty())
    return result;
  const json::Value *given = reader.raw(keys.without);
  const json::Array none, *list = given ? given->getAsArray() : &none;
  for (const json::Value &entry : list ? *list : json::Array{nullptr}) {
    auto layer = entry.getAsInteger();
    if (!layer) {
      reader.fail() << "'" << keys.without << "' = " << ConfigReader::show(*given) << " must be a list of layers";
      return result;
    }
    if (*layer >= 0 && *layer < layers)
      result[*layer] = false;
  }
  std::vector<json::Value> same{given ? *given : json::Value(json::Array())};
  if (list->empty())
    same.emplace_back(nullptr);
  reader.means(keys.without, std::move(same), nullptr);
  return result;
}

/// The balancing loss counts only if a config asks for the router's logits, as in transformers.
void pc::readExperts(ConfigReader &reader, const Family &family, ModelConfig &config) {
  const ExpertKeys &keys = family.experts;
  constexpr int64_t mostExperts = 1 << 16, mostLayers = 100000;
  config.experts = reader.size(keyOf(keys.count, keys.otherCount), keys.usual);
  config.expertsPerToken = reader.size("num_experts_per_tok", keys.perToken);
  config.expertFfn = keys.ffn.empty() ? config.ffn : reader.size(keys.ffn, keys.usualFfn);
  config.normalizesExperts = keys.normalize.empty() || reader.flag(keys.normalize, keys.normalizes);
  if (!keys.slope.empty()) {
    config.gateSlope = reader.positive(keys.slope, 1.702);
    config.gateLimit = reader.positive(keys.limit, 7.0);
  }
  if (!keys.groups.empty())
    readGroups(reader, keys, config);
  if (!keys.scale.empty())
    config.routingScale = reader.positive(keys.scale, 2.5);
  if (!keys.shared.empty())
    config.sharedFfn = config.expertFfn * reader.size(keys.shared, 1);
  // transformers adds the balancing loss only when it also returns the router's logits.
  bool balances = reader.flag("output_router_logits", false, KeyRole::Aside);
  double factor = reader.real("router_aux_loss_coef", 0.001, KeyRole::Aside);
  config.balance = balances && keys.balances ? factor : 0;
  if (!reader.failed && config.expertsPerToken > config.experts)
    reader.fail() << "'num_experts_per_tok' = " << config.expertsPerToken << " is more than '" << keys.count
                  << "' = " << config.experts;
  // The limits on experts and layers keep the lists below small. A config beyond them is refused here or when its sizes
  // are read.
  if (!reader.failed && config.experts > mostExperts)
    reader.fail() << "the sizes in config.json are too large: " << config.experts << " experts";
  if (!reader.failed && config.layers <= mostLayers)
    config.hasExperts = layersWithExperts(reader, keys, config.layers);
  if (!llvm::is_contained(config.hasExperts, true))
    config.balance = 0;
}
