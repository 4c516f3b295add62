//===- Regex.h - The patterns of tokenizers -------------------------------===//
// Patterns in tokenizer.json are written for Oniguruma. PCRE2 runs them, after a translation that refuses everything
// whose meaning could differ.
//===----------------------------------------------------------------------===//
#ifndef PCRT_TOKENIZER_REGEX_H
#define PCRT_TOKENIZER_REGEX_H

#include "tokenizer/Component.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace pcrt {

/// A compiled pattern, or a literal text. Any number of threads may use it.
class Regex {
public:
  /// `owner` names the component in messages. Throws PCRT_BAD_INPUT if the pattern means, or may mean, something else
  /// to PCRE2.
  Regex(const Component &owner, std::string pattern, bool isLiteral);

  /// The pattern of a component: {"String": TEXT} or {"Regex": TEXT}.
  static Regex read(Component &owner, const char *key);

  using Found = std::function<void(size_t begin, size_t end)>;

  /// Calls `found` with each match in valid UTF-8, in order, as Oniguruma's binding finds them: an empty match counts
  /// unless it touches the match before. Throws PCRT_BAD_INPUT if the search needs too many steps.
  void forEach(std::string_view text, const Found &found) const;

private:
  void forEachLiteral(std::string_view text, const Found &found) const;
  bool next(std::string_view text, size_t from, size_t &begin, size_t &end) const;

  std::string place, original;
  bool isLiteral, hasJit = false;
  std::shared_ptr<void> code; ///< pcre2_code; null for a literal.
};

/// Returns `pattern` in PCRE2's syntax, with the same meaning. Throws like Regex.
std::string translatePattern(const Component &owner, const std::string &pattern);

} // namespace pcrt

#endif // PCRT_TOKENIZER_REGEX_H
