//===- PreTokenizer.h - Text to words -------------------------------------===//
// A pre-tokenizer cuts a text into words. The model then turns each word into tokens, separately.
//===----------------------------------------------------------------------===//
#ifndef PCRT_TOKENIZER_PRETOKENIZER_H
#define PCRT_TOKENIZER_PRETOKENIZER_H

#include "tokenizer/Regex.h"

#include <array>
#include <deque>
#include <memory>

namespace pcrt {

/// A part of a text, and whether it is at the beginning of the document's text.
struct Word {
  std::string_view text;
  bool isFirst = false;
};

/// Words, and the texts that pre-tokenizers have written for them. One thread uses it for one document after another.
struct Words {
  std::vector<Word> words, next;
  std::deque<std::string> texts;

  void clear() { words.clear(), texts.clear(); }
  std::string_view keep(std::string text) { return texts.emplace_back(std::move(text)); }
};

/// One step of a pre-tokenizer. Any number of threads may use it.
class PreTokenizer {
public:
  virtual ~PreTokenizer() = default;
  /// Reads words.words and replaces them. Empty words are left out.
  virtual void split(Words &words) const = 0;
};

/// GPT-2's table of characters, with which byte-level tokenizers write bytes.
struct ByteCharacters {
  std::array<std::string, 256> ofByte;
  /// Returns the bytes that `text` stands for, or nullopt if one of its characters stands for no byte.
  std::optional<std::string> bytes(std::string_view text) const;
  std::string characters(std::string_view bytes) const;
  static const ByteCharacters &get();

private:
  ByteCharacters();
  std::array<int, 512> byteOf;
};

/// The steps of a pre-tokenizer, in order.
struct PreTokenizers {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  /// The last step writes bytes as characters; it is left out if the model reads bytes.
  bool endsInBytes = false;
};

/// Reads a pre-tokenizer. Throws like Component.
PreTokenizers readPreTokenizer(Component component);

} // namespace pcrt

#endif // PCRT_TOKENIZER_PRETOKENIZER_H
