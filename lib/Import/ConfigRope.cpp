//===- ConfigRope.cpp - Keys of rotary embeddings ------------------------------------------===//
// Reads theta, the scaling type and its parameters, and computes one frequency per rotated pair. Supported types:
// default, linear, llama3, and YaRN. transformers computes frequencies in f32, and this file repeats its order of
// operations, because another order would change the last bit of cos and sin tables.
//===-----------------------------------------------------------------------------===//
#include "ConfigSections.h"
#include "pc/Support/Diagnostics.h"
#include "llvm/Support/StringSaver.h"

#include <cmath>

using namespace mlir;
using namespace pc;

namespace {

/// The values of the keys of rotary embeddings.
struct Rope {
  std::string type;
  double theta = 10000, part = 1, factor = 1, low = 1, high = 4, original = 8192;
  double fast = 32, slow = 1, scale = 1; ///< yarn: rotations in the original length, and the factor of cos and sin
  double ofScores = 1;                   ///< yarn: the factor of latent attention's scores
  bool wholePairs = true;                ///< yarn: whether its bounds are rounded
};

/// The rotated part of a head: `all` elements; each frequency turns one pair of them.
struct Pairs {
  int64_t all;
  float theta;

  float frequency(int64_t i) const { return 1.0f / power(i); }
  float power(int64_t i) const { return std::pow(theta, static_cast<float>(2 * i) / static_cast<float>(all)); }
};

/// YaRN (Peng et al., arXiv:2309.00071): pairs that turn often within the original length keep their frequencies, pairs
/// that turn seldom are slowed by the factor, and there is a linear ramp in between. Computed in f32, in the order of
/// transformers.
class Yarn {
public:
  /// Finds the first and the last pair of the ramp. If they are equal, the ramp gets a small width.
  Yarn(const Rope &rope, const Pairs &pairs) : rope(rope), pairs(pairs) {
    first = pairThatTurns(rope.fast);
    last = pairThatTurns(rope.slow);
    if (rope.wholePairs) {
      first = std::floor(first);
      last = std::ceil(last);
    }
    first = std::max(first, 0.0);
    last = std::min(last, double(pairs.all - 1));
    if (first == last)
      last += 0.001;
  }

  /// Fast pairs keep their frequency, slow ones have it divided by the factor, and between both there is a ramp.
  float frequency(int64_t i) const {
    float slowed = 1.0f / (static_cast<float>(rope.factor) * pairs.power(i));
    float ramp = (static_cast<float>(i) - static_cast<float>(first)) / static_cast<float>(last - first);
    float kept = 1 - std::clamp(ramp, 0.0f, 1.0f);
    return slowed * (1 - kept) + pairs.frequency(i) * kept;
  }

private:
  double pairThatTurns(double times) const {
    return double(pairs.all) * std::log(rope.original / (times * 2 * M_PI)) / (2 * std::log(rope.theta));
  }

  const Rope &rope;
  const Pairs &pairs;
  double first, last;
};

/// The places of the keys of some layers' rotary embeddings.
struct RopePlace {
  StringRef layers;    ///< name of the object in 'rope_parameters' for these layers; "": for all layers
  bool scaled;         ///< 'rope_scaling' applies to them
  StringRef theta;     ///< the key next to the objects
  double usualTheta;   ///< the default of theta
  StringRef part = ""; ///< the key of the rotated share of a head
  double usualPart = 1;
};

/// Reads the keys of one family into `Rope` and turns it into frequencies. `strings` holds the dotted key names, which
/// ConfigKey refers to. Errors go to `reader`.
class RopeReader {
public:
  RopeReader(ConfigReader &reader, const Family &family, const ModelConfig &config)
      : reader(reader), family(family), config(config) {}

  /// Checks that the objects with the settings of rotary embeddings are nested as deeply as the family's objects. If
  /// both objects are given, they must be equal, because transformers reads only the first one.
  bool checkObjects();
  Rope read(const RopePlace &at);
  Rotation rotation(const Rope &rope);

private:
  void readYarn(const RopePlace &at, Rope &rope);
  /// The places where `key` can be: transformers 4 writes 'rope_scaling' and 'rope_theta', transformers 5
  /// 'rope_parameters'.
  ConfigKey places(const RopePlace &at, StringRef key, StringRef beside = "") {
    std::string layers = at.layers.empty() ? "" : at.layers.str() + ".";
    ConfigKey result(strings.save("rope_parameters." + layers + key.str()));
    if (at.scaled)
      result.places.insert(at.layers.empty() ? result.places.begin() : result.places.end(),
                           strings.save("rope_scaling." + key.str()));
    if (!beside.empty())
      result.places.push_back(beside);
    return result;
  }

  ConfigReader &reader;
  const Family &family;
  const ModelConfig &config;
  llvm::BumpPtrAllocator memory;
  llvm::StringSaver strings{memory};
};

} // namespace

/// Both objects may be given; they then have to be equal.
bool RopeReader::checkObjects() {
  const llvm::json::Object *first = nullptr;
  for (const char *key : {"rope_scaling", "rope_parameters"}) {
    const llvm::json::Value *value = reader.raw(key);
    const llvm::json::Object *object = value ? value->getAsObject() : nullptr;
    if (value && !object) {
      reader.fail() << "'" << key << "' must be an object";
      return false;
    }
    // A missing object and an empty one mean the same.
    if (!object || object->empty())
      continue;
    for (const auto &entry : *object) {
      // Files of models with windows have an object for each kind of layer in `rope_parameters`. Anywhere else, entries
      // are plain values.
      bool isOfLayers = family.ropeOfWindows && StringRef(key) == "rope_parameters";
      bool isKnown = StringRef(entry.first) == "full_attention" || StringRef(entry.first) == "sliding_attention";
      if (entry.second.getAsObject() && !(isOfLayers && isKnown)) {
        reader.fail() << "'" << key << "." << llvm::StringRef(entry.first)
                      << "' is an object, but different rotary embeddings per layer are not supported for this model";
        return false;
      }
      if (isOfLayers && !entry.second.getAsObject()) {
        reader.fail() << "'" << key << "." << llvm::StringRef(entry.first)
                      << "' is given next to objects per kind of layer, which is not supported";
        return false;
      }
    }
    // Older files have 'rope_scaling', newer ones 'rope_parameters', and some have both.
    if (first && *first != *object) {
      reader.fail() << "'rope_scaling' and 'rope_parameters' differ; remove the wrong one";
      return false;
    }
    first = object;
  }
  return true;
}

/// Reads the type first, since it determines the other keys.
Rope RopeReader::read(const RopePlace &at) {
  Rope rope;
  rope.theta = reader.positive(places(at, "rope_theta", at.theta), at.usualTheta);
  // Older files call it `type`, newer ones `rope_type`.
  ConfigKey type = places(at, "rope_type");
  llvm::append_range(type.places, places(at, "type").places);
  constexpr std::pair<RopeTypes, const char *> all[] = {
      {PlainRope, "default"}, {LinearRope, "linear"}, {Llama3Rope, "llama3"}, {YarnRope, "yarn"}};
  rope.type = reader.text(type, "default");
  std::string known;
  bool isKnown = false;
  for (auto [bit, name] : all)
    if (family.ropes & bit) {
      known += (known.empty() ? "" : ", ") + std::string(name);
      isKnown |= rope.type == name;
    }
  if (!isKnown) {
    reader.fail() << "rope type \"" << escaped(rope.type) << "\" in " << reader.name(type)
                  << " is not supported; supported types: " << known;
    return rope;
  }
  ConfigKey part = places(at, "partial_rotary_factor", at.part.empty() ? "partial_rotary_factor" : at.part);
  if (at.part.empty())
    reader.onlyOne(part);
  else if (rope.part = reader.positive(part, at.usualPart); rope.part > 1)
    reader.fail() << reader.name(part) << " = " << rope.part << " is larger than 1, the whole head";
  if (rope.type != "default")
    rope.factor = reader.positive(places(at, "factor"), std::nullopt);
  // The length of the sequences before the context was extended. If the object does not have it, the file's own keys
  // count.
  if (rope.type == "llama3" || rope.type == "yarn") {
    ConfigKey original = places(at, "original_max_position_embeddings", "max_position_embeddings");
    original.places.insert(original.places.begin(), "original_max_position_embeddings");
    rope.original = reader.positive(original, family.positions);
  }
  if (rope.type == "yarn")
    readYarn(at, rope);
  if (rope.type == "llama3") {
    rope.low = reader.positive(places(at, "low_freq_factor"), std::nullopt);
    rope.high = reader.positive(places(at, "high_freq_factor"), std::nullopt);
    if (rope.high <= rope.low)
      reader.fail() << "'high_freq_factor' must be larger than 'low_freq_factor'";
  }
  return rope;
}

/// B. Peng et al., "YaRN: efficient context window extension of large language models", 2023, with the keys of
/// transformers.
void RopeReader::readYarn(const RopePlace &at, Rope &rope) {
  rope.fast = reader.positive(places(at, "beta_fast"), 32);
  rope.slow = reader.positive(places(at, "beta_slow"), 1);
  rope.wholePairs = reader.flag(places(at, "truncate"), true);
  // The paper's "mscale": softmax over a longer sequence is flatter, and larger cos and sin compensate for this.
  auto scaleBy = [&](double weight) { return rope.factor <= 1 ? 1 : 0.1 * weight * std::log(rope.factor) + 1; };
  ConfigKey given = places(at, "attention_factor");
  double own = reader.real(places(at, "mscale"), 0.0), all = reader.real(places(at, "mscale_all_dim"), 0.0);
  if (family.form.latent && all != 0)
    rope.ofScores = scaleBy(all) * scaleBy(all);
  if (reader.has(given)) {
    rope.scale = reader.positive(given, std::nullopt);
    return;
  }
  reader.means(given, {nullptr}, nullptr);
  rope.scale = own != 0 && all != 0 ? scaleBy(own) / scaleBy(all) : scaleBy(1);
  if (!(std::isfinite(rope.scale) && rope.scale > 0))
    reader.fail() << reader.name(places(at, "mscale")) << " and 'mscale_all_dim' scale rotary embeddings by "
                  << rope.scale;
}

/// The frequency of every pair of numbers, in f32 as transformers computes them.
Rotation RopeReader::rotation(const Rope &rope) {
  Rotation result{{}, rope.scale, rope.ofScores};
  auto rotated = static_cast<int64_t>(double(config.ropeDim ? config.ropeDim : config.headDim) * rope.part);
  if (rotated % 2 || rotated == 0) {
    reader.fail() << (rope.part == 1 ? "the head size is " : "the rotated part of a head has size ") << rotated
                  << (rotated ? ", which is odd" : ", which is empty")
                  << "; rotary embeddings rotate pairs of elements";
    return result;
  }
  const Pairs pairs{rotated, static_cast<float>(rope.theta)};
  const Yarn yarn(rope, pairs);
  for (int64_t i = 0; i < rotated / 2; ++i) {
    float frequency = rope.type == "yarn" ? yarn.frequency(i) : pairs.frequency(i);
    if (rope.type == "linear") {
      frequency /= static_cast<float>(rope.factor);
    } else if (rope.type == "llama3") {
      // Llama 3: long waves are slowed by the factor, short ones do not change, and the waves in between are
      // interpolated.
      double wavelength = 2 * M_PI / frequency;
      if (wavelength > rope.original / rope.low) {
        frequency /= static_cast<float>(rope.factor);
      } else if (wavelength >= rope.original / rope.high) {
        double smooth = (rope.original / wavelength - rope.low) / (rope.high - rope.low);
        frequency = static_cast<float>((1 - smooth) * frequency / rope.factor + smooth * frequency);
      }
    }
    if (!std::isfinite(frequency)) {
      reader.fail() << "'rope_theta' and the scaling of rotary embeddings give frequencies that are not finite in f32";
      return result;
    }
    result.frequencies.push_back(frequency);
  }
  return result;
}

/// Layers with windows may have other rotary embeddings than layers without.
void pc::readRopes(ConfigReader &reader, const Family &family, ModelConfig &config) {
  RopeReader ropes(reader, family, config);
  if (!ropes.checkObjects())
    return;
  if (family.ropeRequired && !reader.has("rope_scaling") && !reader.has("rope_parameters")) {
    reader.fail() << "'rope_parameters' is missing";
    return;
  }
  const FamilyKeys &keys = family.keys;
  SmallVector<RopePlace, 2> places;
  if (family.ropeOfWindows)
    places = {{"full_attention", true, keys.theta, family.theta},
              {"sliding_attention", false, "rope_local_base_freq", 10000}};
  else
    places = {{"", true, keys.theta, family.theta, keys.rotaryPart, family.rotaryPart}};
  for (const RopePlace &place : places) {
    Rope rope = ropes.read(place);
    if (reader.failed || config.headDim > mostHeadDim) // parseConfig refuses it; do not build its table
      return;
    config.ropes.push_back(ropes.rotation(rope));
  }
}
