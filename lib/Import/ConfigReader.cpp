//===- ConfigReader.cpp - Reads and checks the keys of a config.json ------------------===//
// Each accessor records that its key was read, checks the type and the range, and reports an error with the key's name.
// Keys that change what the model computes are also recorded as `config_means`: the values with which a checkpoint's
// config.json means the same model. The keys that remain in `unused()` become warnings.
//===-----------------------------------------------------------------------------===//
#include "ConfigReader.h"

#include <cmath>
#include <functional>

using namespace mlir;
using namespace pc;
namespace json = llvm::json;

/// The value at a dotted place; null if there is none.
static const json::Value *at(const json::Object &object, StringRef place) {
  auto [first, rest] = place.split('.');
  const json::Value *value = object.get(first);
  if (rest.empty() || !value)
    return value;
  const json::Object *inner = value->getAsObject();
  return inner ? at(*inner, rest) : nullptr;
}

const json::Value *ConfigReader::find(const ConfigKey &key) const {
  for (StringRef place : key.places)
    if (const json::Value *value = at(object, place); value && value->kind() != json::Value::Null)
      return value;
  return nullptr;
}

const json::Value *ConfigReader::raw(ConfigKey key) {
  for (StringRef place : key.places)
    used.insert(place);
  return find(key);
}

/// Names the place that has a value. If no place has one, names the place that would belong to the objects of this
/// config.
std::string ConfigReader::name(const ConfigKey &key) const {
  StringRef best = key.places.front();
  for (StringRef place : llvm::reverse(key.places)) // the place of the key, or a place whose object exists
    if (at(object, place.rsplit('.').first))
      best = place;
  for (StringRef place : llvm::reverse(key.places))
    if (const json::Value *value = at(object, place); value && value->kind() != json::Value::Null)
      best = place;
  return "'" + best.str() + "'";
}

std::string ConfigReader::show(const json::Value &value) {
  std::string s;
  llvm::raw_string_ostream(s) << value;
  return s.size() > 40 ? s.substr(0, 40) + "..." : s;
}

/// An entry of config_means: the places of the key, the values that mean the same, and the defaults.
void ConfigReader::means(ConfigKey key, std::vector<json::Value> values, json::Value absent,
                         std::optional<json::Value> null) {
  json::Array places;
  for (StringRef place : key.places)
    places.push_back(place.str());
  json::Object meaning{{"at", std::move(places)}, {"values", values}, {"default", absent}};
  if (null && *null != absent)
    meaning["null"] = std::move(*null);
  written.push_back(std::move(meaning));
}

/// After an error the result is 1 or the default, so that reading can continue.
int64_t ConfigReader::size(ConfigKey key, std::optional<int64_t> absent, KeyRole role) {
  int64_t result = std::max<int64_t>(absent.value_or(1), 1);
  if (const json::Value *value = raw(key)) {
    auto number = value->getAsInteger();
    if (number && *number >= 1 && *number < (int64_t(1) << 31))
      result = *number;
    else
      fail() << name(key) << " must be a positive integer, got " << show(*value);
  } else if (!absent) {
    miss(key);
  }
  if (role == KeyRole::Computes)
    means(key, {result}, absent ? json::Value(*absent) : json::Value(nullptr));
  return result;
}

double ConfigReader::real(ConfigKey key, std::optional<double> absent, KeyRole role) {
  double result = absent.value_or(1);
  if (const json::Value *value = raw(key)) {
    auto number = value->getAsNumber();
    if (number && std::isfinite(*number))
      result = *number;
    else
      fail() << name(key) << " must be a finite number, got " << show(*value);
  } else if (!absent) {
    miss(key);
  }
  if (role == KeyRole::Computes)
    means(key, {result}, absent ? json::Value(*absent) : json::Value(nullptr));
  return result;
}

double ConfigReader::positive(ConfigKey key, std::optional<double> absent, KeyRole role) {
  double value = real(key, absent, role);
  if (value <= 0)
    fail() << name(key) << " must be positive, got " << value;
  return value;
}

/// A boolean. null is refused if the default is true, because transformers would treat it as false.
bool ConfigReader::flag(ConfigKey key, bool absent, KeyRole role) {
  bool result = absent;
  if (const json::Value *value = raw(key)) {
    if (auto b = value->getAsBoolean())
      result = *b;
    else
      fail() << name(key) << " must be true or false, got " << show(*value);
  } else if (absent && llvm::any_of(key.places, [&](StringRef place) { return at(object, place); })) {
    fail() << name(key) << " must be true or false, got null"; // transformers treats null as false
  }
  if (role == KeyRole::Computes)
    means(key, {result}, absent, absent ? std::optional<json::Value>(false) : std::nullopt);
  return result;
}

/// The recorded values are the set of synonyms that contains the string, or the string alone.
std::string ConfigReader::text(ConfigKey key, StringRef absent, ArrayRef<ArrayRef<StringRef>> synonyms) {
  std::string result = absent.str();
  if (const json::Value *value = raw(key)) {
    if (auto s = value->getAsString())
      result = s->str();
    else
      fail() << name(key) << " must be a string, got " << show(*value);
  }
  std::vector<json::Value> values;
  for (ArrayRef<StringRef> set : synonyms)
    if (llvm::is_contained(set, result))
      for (StringRef same : set)
        values.emplace_back(same);
  if (values.empty())
    values.emplace_back(result);
  means(key, std::move(values), absent.empty() ? json::Value(nullptr) : json::Value(absent.str()));
  return result;
}

void ConfigReader::onlyOne(ConfigKey key) {
  if (double value = real(key, 1.0); value != 1.0)
    fail() << name(key) << " = " << value << " is not supported";
}

void ConfigReader::onlyFlag(ConfigKey key, bool allowed, KeyRole role) {
  if (flag(key, allowed, role) != allowed)
    fail() << name(key) << " = " << (allowed ? "false" : "true") << " is not supported";
}

/// If a key of an object was read, its other keys are listed; otherwise only the name of the object.
std::vector<std::string> ConfigReader::unused() const {
  std::vector<std::string> result;
  std::function<void(const json::Object &, const std::string &)> visit = [&](const json::Object &of,
                                                                             const std::string &prefix) {
    for (const auto &entry : of) {
      std::string place = prefix + entry.first.str(), within = place + ".";
      const json::Object *inner = entry.second.getAsObject();
      bool isRead = inner && llvm::any_of(used.keys(), [&](StringRef other) { return other.starts_with(within); });
      if (isRead)
        visit(*inner, within);
      else if (!used.contains(place))
        result.push_back(place);
    }
  };
  visit(object, "");
  llvm::sort(result);
  return result;
}
