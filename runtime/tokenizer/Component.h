//===- Component.h - A part of tokenizer.json ------------------------------===//
// The file is not trusted, and every setting may change tokens. Therefore a setting with an unknown name is refused,
// like a wrong value.
//===----------------------------------------------------------------------===//
#ifndef PCRT_TOKENIZER_COMPONENT_H
#define PCRT_TOKENIZER_COMPONENT_H

#include "base/Failure.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace pcrt {

/// The JSON of a file. Fractions have the values that the package `tokenizers` reads. Its parser (serde_json) does not
/// round them correctly, but sums of scores that are equal there must be equal here. Throws PCRT_BAD_DATA.
nlohmann::json parseTokenizerJson(const std::string &path);

/// A JSON object with a "type", such as a normalizer. It borrows the JSON. Its functions throw PCRT_BAD_DATA if the
/// file is malformed, and PCRT_BAD_INPUT if it asks for something that is not supported; the message names file and
/// component.
class Component {
public:
  using Json = nlohmann::json;

  /// `where` begins messages: "tokenizer.json: normalizer".
  Component(const Json &json, std::string where);

  const std::string &type() const { return kind; }
  const std::string &name() const { return where; }

  /// The value of a setting; without a default it is required. A null counts as absent.
  std::string text(const char *key, std::optional<std::string> otherwise = std::nullopt);
  bool flag(const char *key, std::optional<bool> otherwise = std::nullopt);
  int64_t number(const char *key, std::optional<int64_t> otherwise = std::nullopt);
  /// A string of one character.
  std::string character(const char *key);
  /// Returns null if the setting is absent.
  const Json *json(const char *key);
  /// The components in a list, and their place for messages. Nesting deeper than 16 is refused.
  std::vector<Component> list(const char *key);

  /// A setting that has no effect on tokens.
  void ignore(const char *key) { read.insert(key); }
  /// Refuses settings that were not read.
  void finish() const;

  /// Fails because the file asks for `what`, which is not supported.
  [[noreturn]] void refuse(const std::string &what) const {
    fail(PCRT_BAD_INPUT, where + ": " + what + " is not supported");
  }
  /// Fails because the file is malformed; `what` describes the error.
  [[noreturn]] void malformed(const std::string &what) const { fail(PCRT_BAD_DATA, where + ": " + what); }

private:
  const Json &object;
  std::string where, kind;
  std::set<std::string> read;
  int depth = 0;
};

} // namespace pcrt

#endif // PCRT_TOKENIZER_COMPONENT_H
