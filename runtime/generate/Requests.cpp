//===- Requests.cpp - Requests as JSON ------------------------------------===//
// One function per field. A request is not trusted: every value is checked before it is converted.
//===----------------------------------------------------------------------===//
#include "generate/Requests.h"
#include "base/Failure.h"

#include <map>

using namespace pcrt;
using Json = nlohmann::json;

Json RequestError::json() const {
  return {{"message", field.empty() ? message : field + ": " + message},
          {"type", "invalid_request_error"},
          {"param", field.empty() ? Json() : Json(field)},
          {"code", nullptr}};
}

namespace {

/// A field: its name for messages, and its value, which is not null.
struct Field {
  const std::string &name;
  const Json &value;

  /// Refuses a value that the field does not accept.
  [[noreturn]] void refuse(const std::string &takes) const {
    std::string text = value.is_structured() ? value.is_array() ? "a list" : "an object"
                                             : value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() > 60)
      text = "a long string";
    throw RequestError{name, "it takes " + takes + ", not " + text};
  }
  bool flag() const {
    if (!value.is_boolean())
      refuse("true or false");
    return value.get<bool>();
  }
  std::string text() const {
    if (!value.is_string())
      refuse("a string");
    return value.get<std::string>();
  }
  int32_t integer(int32_t least, const std::string &takes) const {
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > INT32_MAX) ||
        value.get<int64_t>() < least || value.get<int64_t>() > INT32_MAX)
      refuse(takes);
    return value.get<int32_t>();
  }
  float number(double least, double most, const std::string &takes) const {
    if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() <= most))
      refuse(takes);
    return value.get<float>();
  }
};

void readPrompt(TextRequest &to, const Field &field) {
  bool isListOfOne = field.value.is_array() && field.value.size() == 1 && !field.value[0].is_number();
  const Json &prompt = isListOfOne ? field.value[0] : field.value;
  to.text.reset();
  to.generation.prompt.clear();
  if (prompt.is_string()) {
    to.text = prompt.get<std::string>();
    return;
  }
  if (!prompt.is_array())
    field.refuse("a string or a list of token ids");
  for (const Json &token : prompt)
    if (token.is_string() || token.is_array())
      throw RequestError{field.name, "a request can have only one prompt; send a request for each prompt"};
    else
      to.generation.prompt.push_back(Field{field.name, token}.integer(0, "token ids that are integers from 0"));
}

void readTemperature(TextRequest &to, const Field &field) {
  const char *takes = "0 (the most probable token) or a number from 0.001 to 100";
  float value = field.number(0, 100, takes);
  if (field.value.get<double>() != 0 && field.value.get<double>() < 0.001)
    field.refuse(takes);
  to.generation.sampling.temperature = value;
}

void readTopK(TextRequest &to, const Field &field) {
  constexpr int32_t most = 1 << 24; // an f32 holds it exactly
  int32_t value = field.integer(-1, "an integer from 0, where 0 turns it off");
  to.generation.sampling.topK = std::clamp(value, 0, most);
}

void readTopP(TextRequest &to, const Field &field) {
  const char *takes = "a number above 0 and up to 1";
  float value = field.number(0, 1, takes);
  if (value <= 0)
    field.refuse(takes);
  to.generation.sampling.topP = value;
}

void readSeed(TextRequest &to, const Field &field) {
  if (!field.value.is_number_integer())
    field.refuse("an integer of 64 bits");
  to.generation.seed =
      field.value.is_number_unsigned() ? field.value.get<uint64_t>() : uint64_t(field.value.get<int64_t>());
}

void readStop(TextRequest &to, const Field &field) {
  constexpr size_t mostStrings = 16, mostBytes = 1000;
  to.stops.clear();
  for (const Json &one : field.value.is_array() ? field.value : Json::array({field.value})) {
    to.stops.push_back(Field{field.name, one}.text());
    if (to.stops.back().empty())
      throw RequestError{field.name, "a stop string must not be empty"};
    if (to.stops.back().size() > mostBytes || to.stops.size() > mostStrings)
      throw RequestError{field.name, "it takes up to " + std::to_string(mostStrings) + " strings of up to " +
                                         std::to_string(mostBytes) + " bytes"};
  }
}

void readLogprobs(TextRequest &to, const Field &field) {
  bool isFlag = field.value.is_boolean();
  int32_t count = isFlag ? 0 : field.integer(0, "true, false, or 0 (the logarithm for each token of the answer)");
  to.hasLogprobs = !isFlag || field.flag();
  to.hasTop = count == 1;
  if (count > 1)
    throw RequestError{field.name, "only the probabilities of the tokens in the answer are known, so it takes true or "
                                   "0, or 1 with temperature 0"};
}

void readStreamOptions(TextRequest &to, const Field &field) {
  if (!field.value.is_object())
    field.refuse("an object");
  for (const auto &[name, value] : field.value.items()) {
    std::string full = field.name + "." + name;
    if (name == "include_usage")
      to.streamsUsage = Field{full, value}.flag();
    else
      throw RequestError{full, "this field is not supported"};
  }
}

void readId(TextRequest &to, const Field &field) {
  if (!field.value.is_string() && !field.value.is_number_integer())
    field.refuse("a string or an integer");
  to.id = field.value;
}

using Reader = void (*)(TextRequest &, const Field &);
const std::map<std::string_view, Reader> readers = {
    {"prompt", readPrompt},
    {"max_tokens",
     [](TextRequest &to, const Field &field) { to.generation.maxTokens = field.integer(1, "an integer from 1"); }},
    {"temperature", readTemperature},
    {"top_k", readTopK},
    {"top_p", readTopP},
    {"min_p", [](TextRequest &to,
                 const Field &field) { to.generation.sampling.minP = field.number(0, 1, "a number from 0 to 1"); }},
    {"seed", readSeed},
    {"stop", readStop},
    {"logprobs", readLogprobs},
    {"stream", [](TextRequest &to, const Field &field) { to.streams = field.flag(); }},
    {"stream_options", readStreamOptions},
    {"id", readId},
    {"model", [](TextRequest &, const Field &field) { (void)field.text(); }},
    {"user", [](TextRequest &, const Field &field) { (void)field.text(); }},
};

/// Fields of OpenAI's API that are not supported, with the values that change nothing.
const std::map<std::string_view, Json> neutral = {
    {"n", 1},
    {"best_of", 1},
    {"echo", false},
    {"presence_penalty", 0},
    {"suffix", ""},
    {"frequency_penalty", 0},
    {"logit_bias", Json::object()},
};

} // namespace

Json pcrt::parseRequest(std::string_view text) {
  constexpr int deepest = 32; // copies and comparisons of values recurse
  try {
    return Json::parse(text, [](int depth, Json::parse_event_t, const Json &) {
      if (depth > deepest)
        throw RequestError{"", "lists and objects of the request are nested more than " + std::to_string(deepest) +
                                   " deep"};
      return true;
    });
  } catch (const Json::parse_error &error) {
    throw RequestError{"", "the request is not JSON: byte " + std::to_string(error.byte) + " is unexpected"};
  } catch (const Json::exception &) {
    throw RequestError{"", "the request has a number that is too large"};
  }
}

TextRequest pcrt::readRequest(const Json &json, const TextRequest &defaults) {
  if (!json.is_object())
    throw RequestError{"", "a request must be a JSON object"};
  TextRequest request = defaults;
  for (const auto &[name, value] : json.items()) {
    auto reader = readers.find(name);
    auto only = neutral.find(name);
    if (reader == readers.end() && only == neutral.end())
      throw RequestError{printable(name), "this field is not supported"};
    if (value.is_null())
      continue;
    if (reader != readers.end())
      reader->second(request, {name, value});
    else if (value != only->second)
      Field{name, value}.refuse("only " + only->second.dump() + " (anything else is not supported)");
  }
  if (!request.text && request.generation.prompt.empty())
    throw RequestError{"prompt", "the request has no prompt"};
  if (request.hasTop && request.generation.sampling.temperature != 0)
    throw RequestError{"logprobs", "it takes 1 only with temperature 0; use 0 for the tokens of the answer"};
  return request;
}

void pcrt::encodePrompt(TextRequest &request, const Tokenizer &tokenizer, Encoder &encoder, bool usesTemplate) {
  if (!request.text)
    return;
  TokenIds ids;
  try {
    encoder.encode(*request.text, ids);
  } catch (const Failure &failure) {
    throw RequestError{"prompt", failure.message};
  }
  const TokenIds &before = tokenizer.before(), &after = tokenizer.after();
  bool begins = ids.size() >= before.size() && std::equal(before.begin(), before.end(), ids.begin());
  if (usesTemplate && !begins)
    ids.insert(ids.begin(), before.begin(), before.end());
  if (usesTemplate)
    ids.insert(ids.end(), after.begin(), after.end());
  request.generation.prompt.assign(ids.begin(), ids.end());
}
