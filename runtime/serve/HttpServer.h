//===- HttpServer.h - OpenAI's HTTP interface over an engine --------------===//
//   POST /v1/completions, /v1/chat/completions    answers, as a whole or as server-sent events
//   GET  /v1/models, /v1/models/NAME              the one model
//   GET  /health                                  200, or 503 if the engine is not up
//   GET  /metrics                                 what Prometheus reads
// A wrong request gets an error as JSON. A client that disconnects ends its request.
//===----------------------------------------------------------------------===//
#ifndef PCRT_SERVE_HTTPSERVER_H
#define PCRT_SERVE_HTTPSERVER_H

#include "generate/Engine.h"
#include "generate/Requests.h"

#include <memory>

namespace pcrt {

struct ServerOptions {
  ServerOptions() { defaults.generation.sampling.temperature = 1; } // OpenAI's default

  std::string host = "127.0.0.1";
  int port = 8000;         ///< 0: any free port.
  std::string model;       ///< The name of the model.
  std::string apiKey;      ///< If not empty, every request except /health needs "Authorization: Bearer KEY".
  int connections = 256;   ///< Limit of connections, each with a thread; further ones get 503 and are closed.
  int requests = 128;      ///< Limit of requests at a time; further ones get 429.
  size_t bytes = 4 << 20;  ///< Bytes of a request; a longer one gets 413.
  double sendSeconds = 10; ///< Time in which a client must send its request, and read the answer.
  double seconds = 600;    ///< Time for an answer; after it, the request ends with 504.
  TextRequest defaults;    ///< Values of absent fields. Requests without a seed get a random one.
  /// Renders the list of messages of a chat as the text of a prompt, with all special tokens. Throws RequestError.
  /// Null: the template of the model cannot be rendered, and chats get 501.
  std::function<std::string(const nlohmann::json &messages)> renderChat;
};

/// An HTTP server. It borrows the engine and the tokenizer. Without a tokenizer, prompts are lists of token ids, and
/// answers have no text.
class HttpServer {
public:
  HttpServer(Engine &engine, const Tokenizer *tokenizer, ServerOptions options);
  ~HttpServer();

  /// Listens, and returns the port. Throws PCRT_RESOURCE if that is impossible.
  int bind();
  /// Answers requests until stop(). Requests that are not complete then get 503.
  void run();
  /// Makes run() return soon. A signal handler may call it.
  void stop();

private:
  class Server;
  std::unique_ptr<Server> server;
};

} // namespace pcrt

#endif // PCRT_SERVE_HTTPSERVER_H
