//===- WordPiece.cpp - The longest token first ----------------------------===//
// BERT's rule: the next token is always the longest one with which the rest of the word begins. If there is none, or
// the word is too long, the whole word is one unknown token. This file also reads WordLevel, in which each word is one
// token.
//===----------------------------------------------------------------------===//
#include "tokenizer/Model.h"
#include "tokenizer/Unicode.h"

#include <algorithm>

using namespace pcrt;

namespace {

class WordPiece : public Model {
public:
  explicit WordPiece(Component &component) : where(component.name()) {
    tokens.read(component, "vocab");
    unknownText = component.text("unk_token");
    unknown = tokens.id(unknownText);
    isWholeWord = component.type() == "WordLevel";
    if (!isWholeWord) {
      prefix = component.text("continuing_subword_prefix");
      longest = size_t(component.number("max_input_chars_per_word"));
    }
    for (uint32_t id = 0; id < tokens.end(); ++id)
      if (const std::string *text = tokens.text(id))
        longestToken = std::max(longestToken, text->size());
  }

  void encode(std::string_view word, TokenIds &to) const override {
    size_t first = to.size();
    bool known = isWholeWord ? addWhole(word, to) : length(word) <= longest && addParts(word, to);
    if (known)
      return;
    to.resize(first);
    if (!unknown)
      fail(PCRT_BAD_DATA, where + ": the vocabulary does not have the word '" + printable(std::string(word)) +
                              "', nor the unk_token '" + printable(unknownText) + "'");
    to.push_back(*unknown);
  }

private:
  static size_t length(std::string_view word) {
    return size_t(std::count_if(word.begin(), word.end(), [](char c) { return (uint8_t(c) & 0xc0) != 0x80; }));
  }

  bool addWhole(std::string_view word, TokenIds &to) const {
    std::optional<uint32_t> id = tokens.id(word);
    if (id)
      to.push_back(*id);
    return id.has_value();
  }

  bool addParts(std::string_view word, TokenIds &to) const {
    std::string text;
    for (size_t begin = 0; begin < word.size();) {
      text = begin ? prefix : "";
      size_t before = text.size();
      text += word.substr(begin, longestToken);
      std::optional<uint32_t> id;
      while (text.size() > before && !(id = tokens.id(text))) {
        do
          text.pop_back();
        while (text.size() > before && (uint8_t(word[begin + text.size() - before]) & 0xc0) == 0x80);
      }
      if (!id)
        return false;
      to.push_back(*id);
      begin += text.size() - before;
    }
    return true;
  }

  std::string where, prefix, unknownText;
  bool isWholeWord = false;
  std::optional<uint32_t> unknown;
  size_t longest = 0, longestToken = 0; ///< The most characters of a word, and the most bytes of a token.
};

} // namespace

std::unique_ptr<Model> pcrt::readWordPiece(Component &component) { return std::make_unique<WordPiece>(component); }
