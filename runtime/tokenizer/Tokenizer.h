//===- Tokenizer.h - Text to tokens and back ------------------------------===//
// Reads a tokenizer.json of Hugging Face and does what the package `tokenizers` (0.23) does with it. The settings
// "truncation" and "padding" have no effect. A file that asks for anything else that is not supported here is refused.
//===----------------------------------------------------------------------===//
#ifndef PCRT_TOKENIZER_TOKENIZER_H
#define PCRT_TOKENIZER_TOKENIZER_H

#include "tokenizer/AddedTokens.h"
#include "tokenizer/Decoder.h"
#include "tokenizer/Model.h"
#include "tokenizer/Normalizer.h"
#include "tokenizer/PreTokenizer.h"

#include <unordered_set>

namespace pcrt {

/// A tokenizer. Any number of threads may use it.
class Tokenizer {
public:
  /// Reads `path`, or the file tokenizer.json in the directory `path`. Throws PCRT_BAD_DATA if it cannot be read or is
  /// malformed, and PCRT_BAD_INPUT if it asks for something that is not supported.
  explicit Tokenizer(const std::string &path);

  const std::string &path() const { return file; }
  /// One more than the largest id.
  uint32_t end() const { return std::max(model->vocabulary().end(), addedEnd); }
  /// The id of a token's text, such as "</s>".
  std::optional<uint32_t> id(const std::string &text) const;
  /// Tokens that the template puts before and after each text.
  const TokenIds &before() const { return prefix; }
  const TokenIds &after() const { return suffix; }

private:
  friend class Encoder;
  friend class StreamDecoder;

  void readAddedTokens(const nlohmann::json &list);
  void readPostProcessor(Component component);
  /// Returns the text of an id for decoders, or null if the id has none.
  const std::string *text(uint32_t id) const;

  std::string file;
  std::unique_ptr<Model> model;
  Normalizers normalizers;
  PreTokenizers preTokenizers;
  DecoderSteps decoders;
  AddedTokens inText, inNormalized;
  std::unordered_map<uint32_t, std::string> addedTexts; ///< The text of an added token by id, for decoders.
  std::unordered_map<std::string, uint32_t> addedIds;
  std::unordered_set<std::string> specials;
  uint32_t addedEnd = 0;
  TokenIds prefix, suffix;
};

/// Encodes texts. It keeps the tokens of words that it has seen, so that they are computed once. One thread uses it.
class Encoder {
public:
  explicit Encoder(const Tokenizer &tokenizer);

  /// Appends the tokens of a text, without the tokens of the template. Throws PCRT_BAD_DATA if the text is not UTF-8,
  /// and like Model::encode and Regex::forEach.
  void encode(std::string_view text, TokenIds &to);

private:
  void encodePart(std::string_view text, bool isFirst, TokenIds &to);
  void encodeWords(std::string_view text, bool isFirst, TokenIds &to);
  void encodeWord(std::string_view word, TokenIds &to);
  void encodePiece(std::string_view word, TokenIds &to);

  /// A word and its tokens. It replaces any other word that has the same place in the table.
  struct Kept {
    uint64_t hash = 0;
    uint8_t length = 0, count = 0;
    char word[54];
    uint32_t ids[16];
  };

  const Tokenizer &tokenizer;
  Words words;
  std::vector<AddedTokens::Part> parts, inNormalized;
  std::string normalized;
  std::vector<Kept> kept;
};

/// Decodes tokens one after another. The results of push() and finish(), joined, are the text of all tokens, and each
/// of them is valid UTF-8. It borrows the tokenizer.
class StreamDecoder {
public:
  StreamDecoder(const Tokenizer &tokenizer, bool skipsSpecial);
  ~StreamDecoder();

  /// Returns the text that is certain now. Ids without a text are skipped.
  std::string push(uint32_t id);
  /// Ends the stream and returns the rest of its text.
  std::string finish();

private:
  class Output;
  const Tokenizer &tokenizer;
  bool skipsSpecial;
  std::unique_ptr<Output> output;
  std::vector<std::unique_ptr<DecoderStep>> steps;
};

} // namespace pcrt

#endif // PCRT_TOKENIZER_TOKENIZER_H
