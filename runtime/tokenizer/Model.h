//===- Model.h - Words to tokens ------------------------------------------===//
// A model has a vocabulary and a rule that cuts words into its tokens: BPE, WordPiece or Unigram.
//===----------------------------------------------------------------------===//
#ifndef PCRT_TOKENIZER_MODEL_H
#define PCRT_TOKENIZER_MODEL_H

#include "tokenizer/Component.h"

#include <functional>
#include <memory>
#include <string_view>
#include <unordered_map>

namespace pcrt {

using TokenIds = std::vector<uint32_t>;

/// The texts of tokens by id, and the ids by text.
class Vocabulary {
public:
  /// Ids above 2^24 are refused as malformed, and so is an id that two texts have.
  void add(const Component &owner, const std::string &text, uint32_t id);
  /// Reads {"text": id, ...}.
  void read(Component &component, const char *key);

  std::optional<uint32_t> id(std::string_view text) const {
    auto found = ids.find(text);
    return found == ids.end() ? std::nullopt : std::optional<uint32_t>(found->second);
  }
  /// Returns null if no token has this id.
  const std::string *text(uint32_t id) const { return id < texts.size() && texts[id] ? &*texts[id] : nullptr; }
  size_t count() const { return ids.size(); }
  /// One more than the largest id.
  uint32_t end() const { return uint32_t(texts.size()); }

private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, uint32_t, Hash, std::equal_to<>> ids;
  std::vector<std::optional<std::string>> texts;
};

/// A model. Any number of threads may use it.
class Model {
public:
  virtual ~Model() = default;
  /// Appends the tokens of a word, which is not empty. Throws PCRT_BAD_DATA if the word has no tokens in the vocabulary
  /// and the model has no token for unknown ones.
  virtual void encode(std::string_view word, TokenIds &to) const = 0;

  /// If this mark is not empty, a word may be cut before each run of it. The tokens of the word are the tokens of its
  /// parts.
  const std::string &mark() const { return cutMark; }
  const Vocabulary &vocabulary() const { return tokens; }

protected:
  Vocabulary tokens;
  std::string cutMark;
};

/// Reads a model. Throws like Component. If `bytes` is true, words are bytes, which tokens write as characters
/// (ByteCharacters). If the model cannot read bytes, `bytes` becomes false, and words must be written as characters.
std::unique_ptr<Model> readModel(Component component, bool &bytes);

std::unique_ptr<Model> readBpe(Component &component, bool &bytes);
std::unique_ptr<Model> readWordPiece(Component &component);
std::unique_ptr<Model> readUnigram(Component &component);

} // namespace pcrt

#endif // PCRT_TOKENIZER_MODEL_H
