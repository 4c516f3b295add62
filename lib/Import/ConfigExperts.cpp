//===- ConfigExperts.cpp - Keys of mixtures of experts --------------------------------===//
#include "ConfigSections.h"

using namespace mlir;
using namespace pc;
namespace json = llvm::json;

/// Which layers have experts.
static SmallVector<bool> layersWithExperts(ConfigReader &reader, const ExpertKeys &keys, int64_t layers) {
  SmallVector<bool> result(layers, true);
  int64_t every = keys.every.empty() ? 1 : reader.size(keys.every, 1);
  for (int64_t layer = 0; layer < layers; ++layer)
    result[layer] = (layer + 1) % every == 0;
  if (keys.without.empty())
    return result;
  const json::Value *given = reader.raw(keys.without);
  const json::Array none, *list = given ? given->getAsArray() : &none;
  for (const json::Value &entry : list ? *list : json::Array{nullptr}) {
    auto layer = entry.getAsInteger();
    if (!layer) {
      reader.fail() << "'" << keys.without << "' = " << ConfigReader::show(*given) << " is no list of layers";
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

void pc::readExperts(ConfigReader &reader, const Family &family, ModelConfig &config) {
  const ExpertKeys &keys = family.experts;
  constexpr int64_t mostExperts = 1 << 16, mostLayers = 100000;
  config.experts = reader.size(keyOf(keys.count, keys.otherCount), keys.usual);
  config.expertsPerToken = reader.size("num_experts_per_tok", keys.perToken);
  config.expertFfn = keys.ffn.empty() ? config.ffn : reader.size(keys.ffn, keys.usualFfn);
  config.normalizesExperts = keys.normalize.empty() || reader.flag(keys.normalize, false);
  if (!keys.slope.empty()) {
    config.gateSlope = reader.positive(keys.slope, 1.702);
    config.gateLimit = reader.positive(keys.limit, 7.0);
  }
  bool balances = reader.flag("output_router_logits", false, KeyRole::Aside);
  double factor = reader.real("router_aux_loss_coef", 0.001, KeyRole::Aside);
  config.balance = balances ? factor : 0;
  if (!reader.failed && config.expertsPerToken > config.experts)
    reader.fail() << "'num_experts_per_tok' = " << config.expertsPerToken << " is more than '" << keys.count
                  << "' = " << config.experts;
  if (!reader.failed && config.experts > mostExperts)
    reader.fail() << "absurd size: " << config.experts << " experts";
  if (!reader.failed && config.layers <= mostLayers)
    config.hasExperts = layersWithExperts(reader, keys, config.layers);
  if (!llvm::is_contained(config.hasExperts, true))
    config.balance = 0;
}
