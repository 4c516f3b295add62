//===- Engine.cpp - What answers requests -----------------------------------===//
// The program reads requests at any time, and a thread here always reads its answers, so neither waits for the other.
//===----------------------------------------------------------------------===//
#include "generate/Engine.h"
#include "generate/Answers.h"

#include <unistd.h>

using namespace pcrt;
using Json = nlohmann::json;

ProgramEngine::ProgramEngine(GenerationShape shape, int requests, int answers)
    : program(shape), requests(requests), answers(answers), reader([this] { readAnswers(); }) {}

ProgramEngine::~ProgramEngine() {
  close(requests);
  reader.join();
  close(answers);
}

void ProgramEngine::send(const Json &json) {
  std::string line = textOf(json) + "\n";
  for (size_t at = 0; at < line.size();) {
    ssize_t count = write(requests, line.data() + at, line.size() - at);
    if (count < 0 && errno != EINTR) {
      up = false;
      return;
    }
    at += count > 0 ? size_t(count) : 0;
  }
}

uint64_t ProgramEngine::submit(const GenerationRequest &request, Callback callback) {
  const Sampling &how = request.sampling;
  Json line = {{"prompt", request.prompt},
               {"max_tokens", request.maxTokens},
               {"temperature", how.temperature},
               {"top_k", how.topK},
               {"top_p", how.topP},
               {"min_p", how.minP},
               {"seed", request.seed}};
  std::lock_guard<std::mutex> lock(mutex);
  line["id"] = ++lastId;
  callbacks.emplace(lastId, std::move(callback));
  send(line);
  return lastId;
}

void ProgramEngine::cancel(uint64_t id) {
  std::lock_guard<std::mutex> lock(mutex);
  if (callbacks.erase(id))
    send({{"cancel", id}});
}

void ProgramEngine::readAnswers() {
  std::string text;
  char buffer[1 << 16];
  for (ssize_t count; (count = read(answers, buffer, sizeof buffer)) != 0;) {
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      break;
    text.append(buffer, size_t(count));
    size_t begin = 0;
    bool good = true;
    for (size_t end; good && (end = text.find('\n', begin)) != text.npos; begin = end + 1)
      good = take(std::string_view(text).substr(begin, end - begin));
    if (!good)
      break;
    text.erase(0, begin);
  }
  up = false;
}

bool ProgramEngine::take(std::string_view line) try {
  Json json = Json::parse(line);
  auto id = json.at("id").get<uint64_t>();
  std::variant<TokenEvent, RequestError> event;
  bool ends = true;
  if (json.contains("error")) {
    const Json &field = json["error"].at("param");
    event =
        RequestError{field.is_null() ? "" : field.get<std::string>(), json["error"].at("message").get<std::string>()};
  } else {
    std::string reason = json.value("finish_reason", "");
    ends = !reason.empty();
    event = TokenEvent{id, json.at("token").get<int32_t>(), json.at("logprob").get<float>(),
                       !ends              ? FinishReason::None
                       : reason == "stop" ? FinishReason::Stop
                                          : FinishReason::Length};
  }
  std::lock_guard<std::mutex> lock(mutex);
  auto found = callbacks.find(id);
  if (found == callbacks.end()) // cancelled
    return true;
  found->second(event);
  if (ends)
    callbacks.erase(found);
  return true;
} catch (const Json::exception &) {
  return false;
}
