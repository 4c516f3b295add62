//===- TextStream.h - The text of an answer, token by token ---------------===//
// An answer is sent while it is generated. Text is held back while later tokens may still change it, or while it may be
// the beginning of a stop string. So the parts of an answer, joined, are the same however it was cut into tokens.
//===----------------------------------------------------------------------===//
#ifndef PCRT_GENERATE_TEXTSTREAM_H
#define PCRT_GENERATE_TEXTSTREAM_H

#include "tokenizer/Tokenizer.h"

namespace pcrt {

/// Cuts a text at the first stop string in it, the one that ends first; if several end there, at the longest.
class StopStrings {
public:
  /// The strings are valid UTF-8 and not empty.
  explicit StopStrings(std::vector<std::string> strings) : strings(std::move(strings)) {}

  /// Takes bytes, and returns those before any stop string that are certain now. They do not split a character.
  std::string push(std::string_view bytes);
  /// Ends the text and returns the rest of it.
  std::string finish();
  /// Whether a stop string has come. Everything after it is dropped.
  bool found() const { return isFound; }

private:
  std::vector<std::string> strings;
  std::string held;
  bool isFound = false;
};

/// The text of tokens up to a stop string. What push() and finish() return is valid UTF-8. It borrows the tokenizer.
class TextStream {
public:
  /// Special tokens, such as end tokens, have no text.
  TextStream(const Tokenizer &tokenizer, std::vector<std::string> stops)
      : decoder(tokenizer, /*skipsSpecial=*/true), stops(std::move(stops)) {}

  /// Returns the text that is certain now.
  std::string push(int32_t token) { return stops.push(decoder.push(uint32_t(token))); }
  /// Ends the stream and returns the rest of its text.
  std::string finish() {
    std::string text = stops.push(decoder.finish());
    return text + stops.finish();
  }
  /// Whether a stop string has come; it may also come in finish().
  bool stopped() const { return stops.found(); }

private:
  StreamDecoder decoder;
  StopStrings stops;
};

} // namespace pcrt

#endif // PCRT_GENERATE_TEXTSTREAM_H
