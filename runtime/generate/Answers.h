//===- Answers.h - Answers as JSON ----------------------------------------===//
// An answer has the fields of OpenAI's completions, and the ids of its tokens (`token_ids`). It is written as a whole,
// or in parts while it is generated.
//===----------------------------------------------------------------------===//
#ifndef PCRT_GENERATE_ANSWERS_H
#define PCRT_GENERATE_ANSWERS_H

#include "generate/Requests.h"
#include "generate/TextStream.h"

namespace pcrt {

/// The answer to one request, from the tokens that a scheduler reports. It borrows the tokenizer.
class TextAnswer {
public:
  /// `request` has the tokens of its prompt. Without a tokenizer the answer has no text. Throws RequestError if the
  /// request has stop strings then.
  TextAnswer(const TextRequest &request, const Tokenizer *tokenizer);

  /// Takes a token, and returns whether the answer is complete. Later tokens are ignored. A stop string completes an
  /// answer before the scheduler knows it, so the caller then cancels the request (endedEarly).
  bool push(const TokenEvent &event);
  bool isComplete() const { return !reason.empty(); }
  /// Whether a stop string completed the answer before the scheduler ended the request.
  bool endedEarly() const { return isEarly; }
  /// Whether the logits were not finite. Then there is an error instead of an answer.
  bool failed() const { return reason == "error"; }

  const std::string &text() const { return all; }
  const std::vector<int32_t> &tokens() const { return ids; }

  /// Returns the answer so far: {"index", "text", "token_ids", "logprobs", "finish_reason"}. The text of a token is the
  /// text that became certain with it. So the texts of all tokens, joined, are the answer's text.
  nlohmann::json choice() const { return choice(0, 0); }
  /// Like choice(), for the tokens since the last call.
  nlohmann::json nextChoice();
  /// Whether nextChoice() would have text, or end the answer.
  bool hasNext() const { return passedText < all.size() || (isComplete() && !isPassed); }
  /// {"prompt_tokens", "completion_tokens", "total_tokens"}
  nlohmann::json usage() const;
  /// The whole answer: {"id", "object", "choices", "usage"}, or {"id", "error"}.
  nlohmann::json json() const;

private:
  nlohmann::json choice(size_t fromToken, size_t fromByte) const;

  nlohmann::json id;
  size_t promptTokens;
  bool hasLogprobs, hasTop;
  std::optional<TextStream> stream;
  std::string all, reason; ///< `reason` is empty until the answer is complete.
  bool isEarly = false;
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  std::vector<size_t> ends; ///< By token: the length of the text after it.
  size_t passedTokens = 0, passedText = 0;
  bool isPassed = false; ///< The last part was passed on.
};

/// JSON on one line.
std::string textOf(const nlohmann::json &json);

} // namespace pcrt

#endif // PCRT_GENERATE_ANSWERS_H
