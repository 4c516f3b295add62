//===- serve-fake.cpp - A server whose model is fake ----------------------===//
// usage: serve-fake TOKENIZER [NAME=VALUE...]
// Prints its port, and serves until SIGTERM. A thread does what a compiled program does, with a fake model, which gives
// random tokens of the tokenizer. SIGUSR1 makes it fail. At the end it prints how many requests still have a slot.
//===----------------------------------------------------------------------===//
#include "../generate/FakeModel.h"
#include "generate/Answers.h"
#include "serve/HttpServer.h"

#include <csignal>
#include <poll.h>
#include <unistd.h>

using namespace pcrt;
using Json = nlohmann::json;

/// ThreadSanitizer does not see how cpp-httplib, which is not instrumented, guards its static variables.
extern "C" const char *__tsan_default_suppressions() { return "called_from_lib:libcpp-httplib.so\n"; }

static HttpServer *served;
static std::atomic<bool> fails;

/// A program that is controlled through two pipes, as in run/Generation.cpp.
class FakeProgram {
public:
  FakeProgram(Scheduler &scheduler, int requests, int answers, int milliseconds, int nan)
      : scheduler(scheduler), model(scheduler.shape()), requests(requests), answers(answers),
        milliseconds(milliseconds), nan(nan) {}

  void run(bool writesGarbage) {
    GenerationStep step;
    while (!fails && readLines()) {
      if (!scheduler.next(step))
        continue;
      model.run(step);
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      for (GenerationOutputs *part : {&model.back, &model.chunk})
        for (float &logprob : part->logprobs) // a plausible value for this vocabulary
          logprob /= 1 << 24;
      for (const TokenEvent &event : scheduler.finish(model.back, model.chunk)) {
        Json line = {{"id", names[event.id]}, {"token", event.token}, {"logprob", event.logprob}};
        if (event.token == nan)
          line = {{"id", names[event.id]}, {"error", {{"message", "the logits are not finite"}, {"param", nullptr}}}};
        else if (event.reason != FinishReason::None)
          line["finish_reason"] = event.reason == FinishReason::Stop ? "stop" : "length";
        if (event.token == nan)
          scheduler.cancel(event.id);
        write(line);
      }
    }
    if (writesGarbage)
      CHECK(::write(answers, "{\"id\": {}}\n", 11) == 11);
    while (writesGarbage && readLines())
      ;
    close(requests), close(answers);
  }

private:
  /// Takes the lines that have come; waits for some if there is nothing to do. Returns false if there are no more.
  bool readLines() {
    pollfd one{requests, POLLIN, 0};
    bool isIdle = scheduler.waiting() + scheduler.running() == 0;
    if (poll(&one, 1, isIdle ? 100 : 0) <= 0)
      return true;
    char buffer[1 << 16];
    ssize_t count = read(requests, buffer, sizeof buffer);
    if (count <= 0)
      return false;
    text.append(buffer, size_t(count));
    for (size_t end; (end = text.find('\n')) != text.npos; text.erase(0, end + 1))
      take(Json::parse(text.substr(0, end)));
    return true;
  }

  void take(const Json &json) {
    if (json.contains("cancel"))
      return void(scheduler.cancel(ids[json["cancel"]]));
    GenerationRequest request;
    request.prompt = json.at("prompt").get<std::vector<int32_t>>(), request.maxTokens = json.at("max_tokens");
    request.sampling = {json.at("temperature"), json.at("top_k"), json.at("top_p"), json.at("min_p")};
    request.seed = json.at("seed");
    if (request.sampling.minP == 1) // the answer of a program without sampling
      return write({{"id", json["id"]}, {"error", {{"message", "min_p is not compiled"}, {"param", "min_p"}}}});
    uint64_t id = scheduler.add(request);
    names[id] = json.at("id"), ids[json["id"]] = id;
  }

  void write(const Json &json) {
    std::string line = textOf(json) + "\n";
    CHECK(::write(answers, line.data(), line.size()) == ssize_t(line.size()) || fails);
  }

  Scheduler &scheduler;
  FakeModel model;
  int requests, answers, milliseconds, nan; ///< `nan`: this token means that logits are not finite.
  std::string text;
  std::map<uint64_t, uint64_t> names, ids; ///< The names that lines give, by the scheduler's ids, and back.
};

static std::string renderChat(const Json &messages) {
  std::string text;
  for (const Json &message : messages) {
    if (!message.is_object() || !message.contains("content") || !message["content"].is_string())
      throw RequestError{"messages", "a message has a content"};
    text += "<|begin_of_text|>" + message["content"].get<std::string>();
  }
  return text;
}

int main(int argc, char **argv) {
  std::map<std::string, std::string> given;
  for (int i = 2; i < argc; ++i)
    given[std::string(argv[i]).substr(0, std::string(argv[i]).find('='))] = strchr(argv[i], '=') + 1;
  auto number = [&](const char *name, double otherwise) {
    return given.count(name) ? std::stod(given[name]) : otherwise;
  };
  signal(SIGPIPE, SIG_IGN);
  Tokenizer tokenizer(argv[1]);
  ServerOptions options;
  options.port = 0, options.model = "org/fake", options.apiKey = given["key"];
  options.connections = int(number("connections", 64)), options.requests = int(number("requests", 64));
  options.bytes = size_t(number("bytes", 100000)), options.seconds = number("seconds", 60);
  options.sendSeconds = number("send", 10);
  if (given.count("chat"))
    options.renderChat = renderChat;
  GenerationShape shape{
      .groups = 2, .slots = 3, .context = 400, .vocabulary = int32_t(tokenizer.end()), .size = 3, .chunk = 16};
  Scheduler scheduler(shape, {int32_t(number("end", 7))});
  int requests[2], answers[2];
  require(!pipe(requests) && !pipe(answers), "pipes");
  FakeProgram program(scheduler, requests[0], answers[1], int(number("step", 0)), int(number("nan", -1)));
  std::thread steps([&] { program.run(number("garbage", 0) != 0); });
  {
    ProgramEngine engine(shape, requests[1], answers[0]);
    HttpServer server(engine, &tokenizer, options);
    served = &server;
    signal(SIGTERM, [](int) { served->stop(); });
    signal(SIGUSR1, [](int) { fails = true; });
    printf("%d\n", server.bind());
    fflush(stdout);
    server.run();
  }
  steps.join();
  printf("%zu running, %zu waiting\n", scheduler.running(), scheduler.waiting());
  return finishChecks();
}
