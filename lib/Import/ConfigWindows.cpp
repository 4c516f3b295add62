//===- ConfigWindows.cpp - Keys of sliding windows ---------------------------------------===//
// Families name windowed layers in five ways: none, all layers, `layer_types`, a repeating pattern, or lists of words
// (GPT-Neo). Result: `sliding` by layer, and `windows` by layer if a window is shorter than the sequence. A window that
// is at least as long as the sequence is dropped, and a checkpoint may then have any such window.
//===-----------------------------------------------------------------------------===//
#include "ConfigSections.h"

using namespace mlir;
using namespace pc;
namespace json = llvm::json;

/// The value of `max_window_layers` if the key is absent.
constexpr int64_t usualFirstLayer = 28;

/// Reads `layer_types`, which transformers writes in addition to keys with the same meaning. Returns std::nullopt if it
/// is absent.
static std::optional<SmallVector<bool>> readLayerTypes(ConfigReader &reader, int64_t layers) {
  const json::Value *types = reader.raw("layer_types");
  if (!types)
    return std::nullopt;
  const json::Array *array = types->getAsArray();
  SmallVector<bool> sliding;
  for (const json::Value &type : array ? *array : json::Array{*types}) {
    auto name = type.getAsString();
    if (!name || (*name != "sliding_attention" && *name != "full_attention")) {
      reader.fail() << "'layer_types' contains " << ConfigReader::show(type) << ", which is not supported";
      return std::nullopt;
    }
    sliding.push_back(*name == "sliding_attention");
  }
  if (array && static_cast<int64_t>(sliding.size()) == layers)
    return sliding;
  reader.fail() << "'layer_types' must be a list of " << layers << " layers";
  return std::nullopt;
}

/// Appends whether each of `names` is "local"; returns false if one is neither "local" nor "global".
static bool appendLocal(const json::Array *names, SmallVectorImpl<bool> &sliding) {
  for (const json::Value &name : names ? *names : json::Array{nullptr}) {
    auto text = name.getAsString();
    if (!text || (*text != "local" && *text != "global"))
      return false;
    sliding.push_back(*text == "local");
  }
  return true;
}

/// `attention_types`: [[["global", "local"], 12]]. `attention_layers` has priority over it.
static SmallVector<bool> readAttentionTypes(ConfigReader &reader, int64_t layers) {
  const json::Value usual = json::Array{json::Array{json::Array{"global", "local"}, 12}};
  const json::Value *given = reader.raw("attention_types");
  const json::Value &value = given ? *given : usual;
  SmallVector<bool> sliding;
  auto expand = [&] {
    const json::Array *groups = value.getAsArray();
    // Each group is a list of kinds of layers, and how often the list repeats.
    for (const json::Value &group : groups ? *groups : json::Array{nullptr}) {
      const json::Array *pair = group.getAsArray();
      const json::Array *names = pair && pair->size() == 2 ? (*pair)[0].getAsArray() : nullptr;
      auto times = names ? (*pair)[1].getAsInteger() : std::nullopt;
      if (!times || *times < 0 || *times > layers)
        return false;
      for (int64_t i = 0; i < *times && static_cast<int64_t>(sliding.size()) <= layers; ++i)
        if (!appendLocal(names, sliding))
          return false;
    }
    return static_cast<int64_t>(sliding.size()) == layers;
  };
  if (!expand())
    reader.fail() << "'attention_types' = " << ConfigReader::show(value) << " must say for each of " << layers
                  << " layers whether it is \"global\" or \"local\"";
  reader.means("attention_types", {value}, usual);
  const json::Value *listed = reader.raw("attention_layers");
  SmallVector<bool> layersOfList;
  if (listed && (!appendLocal(listed->getAsArray(), layersOfList) || layersOfList.size() != sliding.size()))
    reader.fail() << "'attention_layers' = " << ConfigReader::show(*listed) << " must say for each of " << layers
                  << " layers whether it is \"global\" or \"local\"";
  if (listed && layersOfList != sliding) {
    reader.means("attention_layers", {*listed}, nullptr);
    return layersOfList;
  }
  // The run writes both keys to the config of its checkpoints, so that other readers see the same layers.
  json::Array same;
  for (bool slides : sliding)
    same.push_back(slides ? "local" : "global");
  reader.means("attention_layers", {nullptr, std::move(same)}, nullptr);
  return sliding;
}

/// Layers that would have a window, if there is one.
static SmallVector<bool> slidingLayers(ConfigReader &reader, const Family &family, const ModelConfig &config) {
  if (family.windows == WindowKeys::Listed)
    return readAttentionTypes(reader, config.layers);
  std::optional<SmallVector<bool>> types = readLayerTypes(reader, config.layers);
  SmallVector<bool> sliding(config.layers, family.windows == WindowKeys::Always);
  if (family.windows == WindowKeys::Always || reader.failed)
    return sliding;
  if (family.windows == WindowKeys::Alternating) {
    int64_t pattern = family.windowPattern;
    if (family.patternKey) {
      if (!types && reader.has("sliding_window_pattern"))
        pattern = reader.size("sliding_window_pattern", pattern, KeyRole::Aside);
      reader.raw("sliding_window_pattern");
      reader.raw("_sliding_window_pattern");
    }
    for (int64_t layer = 0; layer < config.layers; ++layer)
      sliding[layer] = (layer + 1) % pattern != 0;
  }
  if (family.windows == WindowKeys::Switched) {
    bool used = reader.flag("use_sliding_window", false, KeyRole::Aside);
    int64_t first = usualFirstLayer;
    if (const json::Value *value = reader.raw("max_window_layers"))
      first = value->getAsInteger().value_or(first);
    for (int64_t layer = 0; layer < config.layers; ++layer)
      sliding[layer] = used && layer >= first;
  }
  return types.value_or(sliding);
}

/// Records the layers with windows, for checkpoints: in the form of this config, or in that of transformers.
static void meansLayers(ConfigReader &reader, const Family &family, ArrayRef<bool> sliding) {
  if (family.windows != WindowKeys::Alternating && family.windows != WindowKeys::Switched)
    return;
  json::Array types;
  for (bool slides : sliding)
    types.push_back(slides ? "sliding_attention" : "full_attention");
  bool isGiven = reader.has("layer_types");
  std::vector<json::Value> values{std::move(types)};
  if (family.windows == WindowKeys::Alternating || !isGiven)
    values.emplace_back(nullptr);
  if (const json::Value *first = reader.raw("max_window_layers"); first && !isGiven)
    reader.means("max_window_layers", {*first}, usualFirstLayer);
  reader.means("layer_types", std::move(values), nullptr);
}

/// A window that is at least as long as the sequence has no effect, so checkpoints may differ in it.
void pc::readWindows(ConfigReader &reader, const Family &family, ModelConfig &config, int64_t sequence) {
  constexpr int64_t mostLayers = 100000;
  if (reader.failed || config.layers > mostLayers)
    return;
  config.sliding = slidingLayers(reader, family, config);
  if (reader.failed)
    return;
  // Without the key, the window has the family's usual size; a key that is null means no window.
  const int64_t usual = family.window;
  ConfigKey key(family.keys.window);
  bool none = !reader.has(key) && (reader.isGiven(family.keys.window) || !usual);
  int64_t window = none ? 0 : reader.size(key, usual, KeyRole::Aside);
  reader.raw(key);
  bool slides = llvm::is_contained(config.sliding, true), effective = slides && window && window < sequence;
  bool isSwitched = family.windows == WindowKeys::Switched;
  bool flag = isSwitched && reader.flag("use_sliding_window", false, KeyRole::Aside), used = slides || flag;
  if (effective && isSwitched && !flag) {
    reader.fail() << "'layer_types' has layers with sliding windows, but 'use_sliding_window' is not true";
    return;
  }
  const json::Value absent = usual ? json::Value(usual) : nullptr;
  if (effective) {
    for (bool isSliding : config.sliding)
      config.windows.push_back(isSliding ? window : 0);
    reader.means(key, {window}, absent, nullptr);
    meansLayers(reader, family, config.sliding);
  } else if (used) {
    std::vector<json::Value> windows{nullptr};
    if (window)
      windows.emplace_back(window);
    if (usual >= sequence && window != usual)
      windows.emplace_back(usual);
    reader.means(key, std::move(windows), absent, nullptr);
  }
  if (!isSwitched)
    return;
  // A window without effect may be switched on or off in a checkpoint.
  std::vector<json::Value> flags{effective};
  if (!effective && used)
    flags.emplace_back(true);
  reader.means("use_sliding_window", std::move(flags), false);
}
