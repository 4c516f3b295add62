//===- Decoder.h - Tokens to text -----------------------------------------===//
// Decoders work on streams. A step gets the text of one token after another, and passes text on once no later token can
// change it. So decoding token by token gives the same text as decoding all tokens at once.
//===----------------------------------------------------------------------===//
#ifndef PCRT_TOKENIZER_DECODER_H
#define PCRT_TOKENIZER_DECODER_H

#include "tokenizer/Component.h"

#include <functional>
#include <memory>
#include <string_view>

namespace pcrt {

/// One step of a decoder, with its state in one stream.
class DecoderStep {
public:
  virtual ~DecoderStep() = default;
  /// Takes valid UTF-8: a token, or a part of one if it does not begin a token.
  virtual void push(std::string_view text, bool beginsToken) = 0;
  /// Ends the stream and passes on the text that was held back.
  virtual void finish() { next->finish(); }

  DecoderStep *next = nullptr;
};

/// The steps of a decoder, at least one, in order. Each function makes its step for one stream.
using DecoderSteps = std::vector<std::function<std::unique_ptr<DecoderStep>()>>;

/// Reads a decoder. If the JSON is null, the decoder joins tokens with spaces. Throws like Component.
DecoderSteps readDecoder(const nlohmann::json &json, const std::string &where);

} // namespace pcrt

#endif // PCRT_TOKENIZER_DECODER_H
