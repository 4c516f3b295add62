//===- AddedTokens.h - Tokens that are cut out of a text ------------------===//
// Added tokens, special ones among them, are found before the model reads a text: some in the text itself, others after
// it is normalized.
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
  bool isNormalized = false; ///< It is found in normalized text.
  bool strips[2] = {};       ///< It takes the white space before and after it.
  bool isSingleWord = false; ///< It is not found within a word.
};

/// Finds added tokens: the leftmost, and of those the longest. Any number of threads may use it.
class AddedTokens {
public:
  /// `text` is what is searched for: the content, or its normalized form.
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
  std::array<std::vector<uint32_t>, 256> lengths; ///< By first byte: the lengths of tokens, longest first.
};

} // namespace pcrt

#endif // PCRT_TOKENIZER_ADDEDTOKENS_H
