//===- requests.cpp - Requests and answers as JSON ------------------------===//
// usage: generate-requests DIRECTORY INPUTS   (an empty directory, and one that has tokenizers)
// Tests the values that each field accepts and refuses, and texts that are not requests.
//===----------------------------------------------------------------------===//
#include "../../Checks.h"
#include "base/Failure.h"
#include "generate/Answers.h"
#include "schedule/EndTokens.h"

#include <fstream>
#include <random>

using namespace pcrt;
using Json = nlohmann::json;

static TextRequest readLine(const std::string &line, const TextRequest &defaults = {}) {
  return readRequest(parseRequest(line), defaults);
}

/// The message for a request that is refused; empty if it is not.
static std::string refusal(const std::string &line) {
  try {
    readLine(line);
  } catch (const RequestError &error) {
    Json json = error.json();
    expect(json["param"] == (error.field.empty() ? Json() : Json(error.field)), "an error names its field");
    return json["message"].get<std::string>();
  }
  return "";
}

static TextRequest read(const std::string &fields) {
  return readLine(R"({"prompt": "x")" + (fields.empty() ? "" : ", " + fields) + "}");
}

static void testFields() {
  TextRequest request = read(R"("max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.05,
    "seed": -2, "stop": ["a", "b"], "logprobs": true, "stream": true, "stream_options": {"include_usage": true},
    "id": 12, "model": "any", "user": "me", "n": 1, "echo": false, "suffix": null, "logit_bias": {},
    "presence_penalty": 0.0, "frequency_penalty": 0, "best_of": 1)");
  const GenerationRequest &generation = request.generation;
  CHECK(request.text == "x" && generation.maxTokens == 7 && generation.seed == uint64_t(-2));
  CHECK(generation.sampling.temperature == 0.5f && generation.sampling.topP == 0.9f && generation.sampling.topK == 40 &&
        generation.sampling.minP == 0.05f);
  CHECK((request.stops == std::vector<std::string>{"a", "b"}) && request.hasLogprobs && !request.hasTop &&
        request.streams && request.streamsUsage && request.id == 12);
  CHECK(read(R"("top_k": -1)").generation.sampling.topK == 0);
  CHECK(read(R"("seed": 18446744073709551615)").generation.seed == UINT64_MAX);
  CHECK(read(R"("stop": "a")").stops.size() == 1 && read(R"("stop": [])").stops.empty());
  CHECK(read(R"("logprobs": 0)").hasLogprobs && !read(R"("logprobs": false)").hasLogprobs);
  CHECK(read(R"("logprobs": 1)").hasTop);
  CHECK(!readLine(R"({"prompt": [1, 2, 300]})").text);
  CHECK((readLine(R"({"prompt": [1, 2, 300]})").generation.prompt == std::vector<int32_t>{1, 2, 300}));
  CHECK(readLine(R"({"prompt": [[1, 2]]})").generation.prompt.size() == 2);
  CHECK(readLine(R"({"prompt": ["y"]})").text == "y");
  TextRequest defaults;
  defaults.text = "default", defaults.generation.maxTokens = 3, defaults.stops = {"c"};
  request = readLine(R"({"prompt": [4], "max_tokens": null})", defaults);
  CHECK(!request.text && request.generation.maxTokens == 3 && request.stops.size() == 1);
  CHECK(readLine("{}", defaults).text == "default");
}

static void testRefusals() {
  CHECK(refusal("{}") == "prompt: the request has no prompt");
  CHECK(refusal(R"({"prompt": []})") == "prompt: the request has no prompt");
  CHECK(refusal("7") == "a request must be a JSON object" && refusal("[1]") == "a request must be a JSON object");
  CHECK(refusal(R"({"prompt": "x")") == "the request is not JSON: byte 15 is unexpected");
  CHECK(refusal(R"({"prompt": "x", "seed": 1e999})") == "the request has a number that is too large");
  CHECK(refusal("{\"prompt\": \"\xff\"}").starts_with("the request is not JSON"));
  CHECK(refusal(R"({"prompt": "\ud800"})").starts_with("the request is not JSON"));
  CHECK(refusal(R"({"prompt": "x", "best_off": 1})") == "best_off: this field is not supported");
  CHECK(refusal(R"({"prompt": "x", "stream_options": {"more": 1}})") ==
        "stream_options.more: this field is not supported");
  CHECK(refusal(R"({"prompt": ["x", "y"]})") ==
        "prompt: a request can have only one prompt; send a request for each prompt");
  CHECK(refusal(R"({"prompt": "x", "temperature": 1, "logprobs": 1})").starts_with("logprobs: it takes 1 only"));
  CHECK(refusal(R"({"prompt": "x", "max_tokens": 2.5})") == "max_tokens: it takes an integer from 1, not 2.5");
  CHECK(refusal(R"({"prompt": "x", "n": 2})") == "n: it takes only 1 (anything else is not supported), not 2");
  // A field and values that it refuses.
  struct {
    const char *field;
    std::vector<const char *> values;
  } wrong[] = {
      {"prompt", {"1", "true", "{}", "[1.5]", "[-1]", "[1, null]", "[4294967296]", "[[1], [2]]", "[[[1]]]"}},
      {"max_tokens", {"0", "-1", "2147483648", "18446744073709551615", "\"1\"", "[]"}},
      {"temperature", {"-0.1", "0.0001", "101", "1e300", "\"1\"", "false"}},
      {"top_p", {"0", "1.01", "-1", "1e-320", "true"}},
      {"top_k", {"-2", "1.5", "2147483648"}},
      {"min_p", {"-0.1", "1.1", "\"\""}},
      {"seed", {"1.5", "\"1\"", "18446744073709551616"}},
      {"stop", {"\"\"", "[\"\"]", "1", "[1]", "[[\"a\"]]", "{}"}},
      {"logprobs", {"2", "-1", "\"1\"", "0.5"}},
      {"stream", {"1", "\"true\""}},
      {"stream_options", {"1", "{\"include_usage\": 1}"}},
      {"id", {"1.5", "{}", "[]", "true"}},
      {"model", {"1"}},
      {"echo", {"true", "1"}},
      {"logit_bias", {"{\"1\": 1}", "[]"}},
      {"presence_penalty", {"0.5", "\"0\""}},
      {"suffix", {"\"s\""}},
  };
  for (const auto &one : wrong)
    for (const char *value : one.values) {
      std::string message = refusal(std::string(R"({"prompt": "x", ")") + one.field + "\": " + value + "}");
      expect(message.starts_with(one.field), one.field + std::string(" refuses ") + value + ": " + message);
    }
  std::string many = "[", deep(100000, '[');
  for (int i = 0; i < 17; ++i)
    many += i ? ", \"s\"" : "\"s\"";
  CHECK(refusal(R"({"prompt": "x", "stop": )" + many + "]}").starts_with("stop: it takes up to 16"));
  CHECK(refusal(R"({"prompt": "x", "stop": ")" + std::string(1001, 's') + "\"}").starts_with("stop: it takes up to"));
  for (const char *field : {"prompt", "stop", "logit_bias"})
    CHECK(refusal(std::string("{\"") + field + "\": " + deep).starts_with("lists and objects of the request"));
}

/// Requests with random damage: each is read, or is refused with a message.
static void testDamage() {
  std::string whole = R"({"prompt": [1, 2], "max_tokens": 7, "temperature": 0.5, "stop": ["a", "é"], "seed": 1000,
    "logprobs": 0, "stream_options": {"include_usage": true}, "id": "x", "logit_bias": {}, "suffix": null})";
  int read = 0;
  for (unsigned seed = 0; seed < 20000; ++seed) {
    std::mt19937 random(seed);
    std::string line = whole;
    for (unsigned count = 1 + random() % 3; count > 0; --count) {
      size_t at = random() % line.size();
      switch (random() % 4) {
      case 0:
        line[at] = char(random());
        break;
      case 1:
        line.erase(at, 1 + random() % 5);
        break;
      case 2:
        line.insert(at, line.substr(random() % line.size(), random() % 20));
        break;
      default:
        line[at] = "0123456789-.e\"[]{},:"[random() % 20];
      }
    }
    read += refusal(line).empty();
  }
  CHECK(read > 100);
}

static void testPrompts(const std::string &inputs) {
  Tokenizer llama(inputs + "/llama3.json");
  Encoder encoder(llama);
  TokenIds ids;
  encoder.encode("hello", ids);
  CHECK(!llama.before().empty());
  auto prompt = [&](const std::string &text) {
    TextRequest request;
    request.text = text;
    encodePrompt(request, llama, encoder);
    return request.generation.prompt;
  };
  std::vector<int32_t> wanted(llama.before().begin(), llama.before().end());
  wanted.insert(wanted.end(), ids.begin(), ids.end());
  wanted.insert(wanted.end(), llama.after().begin(), llama.after().end());
  CHECK(prompt("hello") == wanted);
  CHECK(prompt("<|begin_of_text|>hello") == wanted); // not twice
  CHECK(prompt("").size() == llama.before().size() + llama.after().size());
  try {
    (void)prompt("\xff");
    expect(false, "invalid UTF-8 is refused");
  } catch (const RequestError &error) {
    CHECK(error.field == "prompt" && error.message.find("UTF-8") != std::string::npos);
  }
}

static void testAnswers() {
  TextRequest request;
  request.generation.prompt = {1, 2, 3}, request.id = "mine";
  TextAnswer answer(request, nullptr);
  CHECK(!answer.push({.token = 5, .logprob = -1}) && answer.json()["choices"][0]["finish_reason"].is_null());
  CHECK(answer.push({.token = 6, .logprob = -2, .reason = FinishReason::Stop}) && answer.push({.token = 7}));
  CHECK(textOf(answer.json()) ==
        R"({"choices":[{"finish_reason":"stop","index":0,"logprobs":null,"text":"","token_ids":[5,6]}],"id":"mine",)"
        R"("object":"text_completion","usage":{"completion_tokens":2,"prompt_tokens":3,"total_tokens":5}})");
  TextAnswer failed(request, nullptr);
  CHECK(failed.push({.reason = FinishReason::NotFinite}) && failed.json()["error"]["type"] == "server_error");
  request.stops = {"a"};
  try {
    TextAnswer without(request, nullptr);
    expect(false, "stop strings need a tokenizer");
  } catch (const RequestError &error) {
    CHECK(error.field == "stop");
  }
}

static void testEndTokens(const std::string &directory) {
  auto write = [&](const char *name, const char *text) { std::ofstream(directory + "/" + name) << text; };
  auto ends = [&] { return readEndTokens(directory, 100); };
  for (const char *name : {"generation_config.json", "config.json"})
    std::filesystem::remove(directory + "/" + name);
  CHECK(ends().empty());
  write("config.json", R"({"eos_token_id": 2})");
  CHECK(ends() == std::vector<int32_t>{2});
  write("generation_config.json", R"({"eos_token_id": null})");
  CHECK(ends() == std::vector<int32_t>{2});
  write("generation_config.json", R"({"eos_token_id": [5, 6]})");
  CHECK((ends() == std::vector<int32_t>{5, 6}));
  write("config.json", R"({"text_config": {"eos_token_id": 8}})"), write("generation_config.json", "{}");
  CHECK(ends() == std::vector<int32_t>{8});
  for (const char *text : {"{", "[]", R"({"eos_token_id": 100})", R"({"eos_token_id": "x"})"}) {
    write("generation_config.json", text);
    try {
      (void)ends();
      expect(false, "wrong end tokens are refused");
    } catch (const Failure &failure) {
      CHECK(failure.status == PCRT_BAD_DATA && failure.message.find("generation_config.json") != std::string::npos);
    }
  }
}

int main(int, char **argv) {
  testFields();
  testRefusals();
  testDamage();
  testPrompts(argv[2]);
  testAnswers();
  testEndTokens(argv[1]);
  return finishChecks();
}
