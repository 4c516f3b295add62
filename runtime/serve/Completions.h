//===- Completions.h - Requests of a server and their answers -------------===//
// Handles the body of an HTTP request: checks it, runs it on the engine, and writes the answer, while watching the
// client, the time and the engine.
//===----------------------------------------------------------------------===//
#ifndef PCRT_SERVE_COMPLETIONS_H
#define PCRT_SERVE_COMPLETIONS_H

#include "serve/Connection.h"
#include "serve/HttpServer.h"
#include "serve/Metrics.h"

namespace pcrt {

/// Writes an error as OpenAI does: {"error": {"message", "type", "param", "code"}}.
void respondWithError(httplib::Response &response, int status, const std::string &message, const char *code = nullptr,
                      const std::string &field = "");

/// Answers completions and chats. Any number of threads may use it. It borrows everything.
class Completions {
public:
  Completions(Engine &engine, const Tokenizer *tokenizer, const ServerOptions &options, ServerMetrics &metrics,
              const std::atomic<bool> &stopping)
      : engine(engine), tokenizer(tokenizer), options(options), metrics(metrics), stopping(stopping) {}

  /// Answers a request, whose body is `body`. A response in parts is written after the call.
  void answer(const std::string &body, bool isChat, bool hasChunks, Connection &connection,
              httplib::Response &response);

private:
  class Running;

  TextRequest read(const std::string &body, bool isChat);
  void encode(TextRequest &request, bool isChat);

  Engine &engine;
  const Tokenizer *tokenizer;
  const ServerOptions &options;
  ServerMetrics &metrics;
  const std::atomic<bool> &stopping;
  std::atomic<int> active = 0;
  std::atomic<uint64_t> count = 0;
  std::mutex mutex; ///< Guards the encoders that no thread uses.
  std::vector<std::unique_ptr<Encoder>> encoders;
};

} // namespace pcrt

#endif // PCRT_SERVE_COMPLETIONS_H
