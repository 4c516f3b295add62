//===- Component.cpp - A part of tokenizer.json ----------------------------===//
// Reads settings by name and type, and remembers which were read.
//===----------------------------------------------------------------------===//
#include "tokenizer/Component.h"
#include "base/InputFile.h"
#include "tokenizer/Unicode.h"

#include <cmath>

using namespace pcrt;

namespace {

/// Returns the value of a fraction as serde_json computes it (f64_from_parts): the digits that fit into 64 bits become
/// a double, which is multiplied or divided by a power of ten.
double readFraction(const std::string &text) {
  uint64_t digits = 0;
  int exponent = 0;
  bool isFull = false, isFraction = false;
  size_t at = text[0] == '-';
  for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at) {
    if (text[at] == '.') {
      isFraction = true;
      continue;
    }
    uint64_t digit = uint64_t(text[at] - '0'), more = 0;
    isFull |= __builtin_mul_overflow(digits, 10, &more) || __builtin_add_overflow(more, digit, &more);
    if (!isFull)
      digits = more;
    exponent += isFull ? !isFraction : -int(isFraction);
  }
  if (at < text.size())
    exponent += int(std::clamp(strtol(text.c_str() + at + 1, nullptr, 10), -100000L, 100000L));
  constexpr int most = 308;
  auto value = double(digits);
  for (; exponent < -most && value != 0; exponent += most)
    value /= 1e308;
  // Each power of ten is the double that is nearest to it.
  double power = strtod(("1e" + std::to_string(std::min(std::abs(exponent), most))).c_str(), nullptr);
  value = exponent < 0 ? value / power : exponent > most ? INFINITY : value * power;
  return text[0] == '-' ? -value : value;
}

/// Builds the JSON from the events of nlohmann's parser.
struct Reader : nlohmann::detail::json_sax_dom_parser<nlohmann::json> {
  using json_sax_dom_parser::json_sax_dom_parser;
  bool number_float(double, const std::string &text) {
    return json_sax_dom_parser::number_float(readFraction(text), text);
  }
};

} // namespace

nlohmann::json pcrt::parseTokenizerJson(const std::string &path) {
  InputFile file(path);
  constexpr int64_t most = int64_t(1) << 29;
  if (file.size() > most)
    fail(PCRT_BAD_DATA, path + ": " + std::to_string(file.size()) + " bytes are too many for a tokenizer.json");
  nlohmann::json result;
  Reader reader(result, /*allow_exceptions=*/true);
  try {
    nlohmann::json::sax_parse(file.text(), &reader);
  } catch (const nlohmann::json::exception &error) {
    fail(PCRT_BAD_DATA, path + " is not JSON: " + printable(error.what()));
  }
  return result;
}

Component::Component(const Json &json, std::string place) : object(json), where(std::move(place)) {
  if (!json.is_object())
    malformed("expected an object, not " + std::string(json.type_name()));
  auto found = json.find("type");
  if (found != json.end() && !found->is_string())
    malformed("\"type\" is not a string");
  if (found != json.end()) {
    kind = found->get<std::string>();
    where += " " + printable(kind);
  }
  read.insert("type");
}

const Component::Json *Component::json(const char *key) {
  read.insert(key);
  auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string Component::text(const char *key, std::optional<std::string> otherwise) {
  const Json *value = json(key);
  if (!value && otherwise)
    return *otherwise;
  if (!value || !value->is_string())
    malformed(std::string("\"") + key + "\" is not a string");
  return value->get<std::string>();
}

bool Component::flag(const char *key, std::optional<bool> otherwise) {
  const Json *value = json(key);
  if (!value && otherwise)
    return *otherwise;
  if (!value || !value->is_boolean())
    malformed(std::string("\"") + key + "\" is neither true nor false");
  return value->get<bool>();
}

int64_t Component::number(const char *key, std::optional<int64_t> otherwise) {
  const Json *value = json(key);
  if (!value && otherwise)
    return *otherwise;
  if (!value || !value->is_number_integer() || (value->is_number_unsigned() && value->get<uint64_t>() > INT32_MAX) ||
      value->get<int64_t>() < 0)
    malformed(std::string("\"") + key + "\" is not a whole number from 0 to 2147483647");
  return value->get<int64_t>();
}

std::string Component::character(const char *key) {
  std::string value = text(key);
  if (value.empty() || value.size() != utf8Length(value[0]))
    malformed(std::string("\"") + key + "\" is not one character");
  return value;
}

std::vector<Component> Component::list(const char *key) {
  const Json *value = json(key);
  if (!value || !value->is_array())
    malformed(std::string("\"") + key + "\" is not a list");
  constexpr int deepest = 16;
  if (depth == deepest)
    malformed("components are nested more than 16 deep");
  std::vector<Component> result;
  for (const Json &one : *value) {
    result.emplace_back(one, where + "[" + std::to_string(result.size()) + "]");
    result.back().depth = depth + 1;
  }
  return result;
}

void Component::finish() const {
  for (auto &[key, value] : object.items())
    if (!read.count(key) && !value.is_null())
      refuse("\"" + printable(key) + "\"");
}
