//===- Answers.cpp - Answers as JSON --------------------------------------===//
// Offsets of texts count characters, as OpenAI's do.
//===----------------------------------------------------------------------===//
#include "generate/Answers.h"

using namespace pcrt;
using Json = nlohmann::json;

std::string pcrt::textOf(const Json &json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

TextAnswer::TextAnswer(const TextRequest &request, const Tokenizer *tokenizer)
    : id(request.id), promptTokens(request.generation.prompt.size()), hasLogprobs(request.hasLogprobs),
      hasTop(request.hasTop) {
  if (tokenizer)
    stream.emplace(*tokenizer, request.stops);
  else if (!request.stops.empty())
    throw RequestError{"stop", "stop strings need a tokenizer"};
}

bool TextAnswer::push(const TokenEvent &event) {
  if (isComplete())
    return true;
  if (event.reason == FinishReason::NotFinite) {
    reason = "error";
    return true;
  }
  ids.push_back(event.token);
  logprobs.push_back(event.logprob);
  bool ends = event.reason != FinishReason::None;
  if (stream) {
    all += stream->push(event.token);
    isEarly = stream->stopped() && !ends;
    if (ends)
      all += stream->finish();
  }
  this->ends.push_back(all.size());
  if (stream && stream->stopped())
    reason = "stop";
  else if (ends)
    reason = event.reason == FinishReason::Stop ? "stop" : "length";
  return isComplete();
}

static size_t characters(std::string_view text) {
  return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

Json TextAnswer::choice(size_t fromToken, size_t fromByte) const {
  Json choice = {{"index", 0},
                 {"text", all.substr(fromByte)},
                 {"token_ids", std::vector<int32_t>(ids.begin() + long(fromToken), ids.end())},
                 {"logprobs", nullptr},
                 {"finish_reason", reason.empty() ? Json() : Json(reason)}};
  if (!hasLogprobs)
    return choice;
  Json texts = Json::array(), values = Json::array(), offsets = Json::array(), top = Json::array();
  size_t begin = fromToken ? ends[fromToken - 1] : 0;
  size_t offset = characters(std::string_view(all).substr(0, begin));
  for (size_t i = fromToken; i < ids.size(); ++i) {
    std::string text = all.substr(begin, ends[i] - begin);
    texts.push_back(text), values.push_back(logprobs[i]), offsets.push_back(offset);
    begin = ends[i], offset += characters(text);
    top.push_back({{text, logprobs[i]}});
  }
  choice["logprobs"] = {
      {"tokens", texts}, {"token_logprobs", values}, {"text_offset", offsets}, {"top_logprobs", hasTop ? top : Json()}};
  return choice;
}

Json TextAnswer::nextChoice() {
  Json next = choice(passedTokens, passedText);
  passedTokens = ids.size(), passedText = all.size(), isPassed = isComplete();
  return next;
}

Json TextAnswer::usage() const {
  return {
      {"prompt_tokens", promptTokens}, {"completion_tokens", ids.size()}, {"total_tokens", promptTokens + ids.size()}};
}

Json TextAnswer::json() const {
  if (failed())
    return {{"id", id},
            {"error",
             {{"message", "the model gave logits that are not finite"},
              {"type", "server_error"},
              {"param", nullptr},
              {"code", nullptr}}}};
  return {{"id", id}, {"object", "text_completion"}, {"choices", Json::array({choice()})}, {"usage", usage()}};
}
