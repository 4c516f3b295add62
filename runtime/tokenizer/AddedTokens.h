//===- AddedTokens.h - Tokens that are cut out of a text ------------------===//
// Added tokens, which include special ones, are found before the model reads a text. Some are found in the text itself,
// and others in the normalized text.
//===----------------------------------------------------------------------===//
#ifndef PCRT_TOKENIZER_ADDEDTOKENS_H
#define PCRT_TOKENIZER_ADDEDTOKENS_H

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace pcrt {

struct AddedToken {
  std::string content;
  uint32_t id = 0;
  bool isSpecial = false;
  bool isNormalized = false; ///< Whether the token is found in normalized text.
  bool strips[2] = {};       ///< Whether the token includes the white space before it, and after it.
  bool isSingleWord = false; ///< Whether the token is not found within a word.
};

/// Finds the leftmost added token in a text; if several begin at the same place, the longest. Any number of threads may
/// use it.
class AddedTokens {
public:
  /// `text` is the text to search for: the content of the token, or its normalized form.
  void add(std::string text, const AddedToken &token);

  /// A part of a text: an added token, or text between two.
  struct Part {
    std::string_view text;
    const AddedToken *token = nullptr;
  };
  /// Appends the parts of a text; an empty text has none.
  void cut(std::string_view text, std::vector<Part> &to) const;

private:
  const AddedToken *at(std::string_view text, size_t begin, size_t &length) const;

  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, AddedToken, Hash, std::equal_to<>> tokens;
  std::array<std::vector<uint32_t>, 256> lengths; ///< The lengths of tokens by their first byte, longest first.
};

} // namespace pcrt

#endif // PCRT_TOKENIZER_ADDEDTOKENS_H
