//===- Decoder.h - Tokens to text -----------------------------------------===//
// Decoders work on streams: each gets the text of one token after the other and passes on what no later token can
// change. So a text that is decoded token by token equals the whole, by construction.
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
  /// The stream ends. Passes on what was held back.
  virtual void finish() { next->finish(); }

  DecoderStep *next = nullptr;
};

/// The steps of a decoder, at least one, in order: functions that make them for a stream.
using DecoderSteps = std::vector<std::function<std::unique_ptr<DecoderStep>()>>;

/// Reads a decoder; null: tokens with spaces between them. Throws like Component.
DecoderSteps readDecoder(const nlohmann::json &json, const std::string &where);

} // namespace pcrt

#endif // PCRT_TOKENIZER_DECODER_H
