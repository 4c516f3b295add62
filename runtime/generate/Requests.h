//===- Requests.h - Requests as JSON --------------------------------------===//
// A request is a JSON object with the field names of OpenAI's completions. A wrong or unknown field is an error of this
// request only. A field that is null counts as absent.
//===----------------------------------------------------------------------===//
#ifndef PCRT_GENERATE_REQUESTS_H
#define PCRT_GENERATE_REQUESTS_H

#include "schedule/Scheduler.h"
#include "tokenizer/Tokenizer.h"

#include <nlohmann/json.hpp>

namespace pcrt {

/// The error in a request, which is thrown: the field (or "" if it is not about one field), and a message.
struct RequestError {
  std::string field, message;

  /// OpenAI's object: {"message", "type", "param", "code"}.
  nlohmann::json json() const;
};

/// A request and how its answer is written.
struct TextRequest {
  nlohmann::json id;               ///< A text or a number that the answer repeats, or null.
  std::optional<std::string> text; ///< The prompt, unless the request gives tokens.
  GenerationRequest generation;
  std::vector<std::string> stops;
  bool hasLogprobs = false;  ///< The answer has the logarithms of the tokens' probabilities.
  bool hasTop = false;       ///< It also repeats them as those of the most probable tokens. Only if temperature is 0.
  bool streams = false;      ///< The answer is sent in parts.
  bool streamsUsage = false; ///< The last part counts tokens.
};

/// Reads JSON that is not trusted. Throws RequestError.
nlohmann::json parseRequest(std::string_view text);

/// Reads a request; absent fields have the values of `defaults`. Throws RequestError.
///   prompt        a string, or a list of token ids
///   max_tokens    from 1
///   temperature   0 (the most probable token), or from 0.001 to 100
///   top_p         above 0, up to 1         top_k   from 0; 0 and -1: off         min_p   from 0 to 1
///   seed          an integer
///   stop          a string, or a list of up to 16 strings, of up to 1000 bytes each
///   logprobs      false, true, 0 (as true), or 1 if temperature is 0
///   stream, stream_options.include_usage    true or false
///   id            a string or an integer
/// `model` and `user` are strings without effect; n, best_of, echo, suffix, logit_bias and penalties must have the
/// values that change nothing.
TextRequest readRequest(const nlohmann::json &json, const TextRequest &defaults);

/// Turns the text of a request into the tokens of its prompt. The tokens that the tokenizer's template puts before a
/// text are left out if the text itself begins with them, and all of the template without `usesTemplate`. Throws
/// RequestError.
void encodePrompt(TextRequest &request, const Tokenizer &tokenizer, Encoder &encoder, bool usesTemplate = true);

} // namespace pcrt

#endif // PCRT_GENERATE_REQUESTS_H
