//===- HttpServer.cpp - OpenAI's HTTP interface over an engine ------------===//
// cpp-httplib reads and writes HTTP. Connections are our own (Connection.h), and everything that a client may do wrong
// is checked before its body is read. Ranges and compression are off.
//===----------------------------------------------------------------------===//
#include "serve/HttpServer.h"
#include "base/Failure.h"
#include "generate/Answers.h"
#include "serve/Completions.h"

#include <openssl/crypto.h>

using namespace pcrt;
using Json = nlohmann::json;

namespace {

/// True while the accepting thread itself answers a connection, because all other threads are busy.
thread_local bool sheds = false;

/// The threads of connections.
class Connections : public httplib::ThreadPool {
public:
  Connections(int most, std::function<void()> look) : ThreadPool(size_t(most)), most(most), look(std::move(look)) {}

  void enqueue(std::function<void()> serve) override {
    look();
    if (busy >= most) { // the server answers at once, on the thread that accepts
      sheds = true;
      serve();
      sheds = false;
      return;
    }
    ++busy;
    ThreadPool::enqueue([this, serve = std::move(serve)] {
      serve();
      --busy;
    });
  }
  void on_idle() override { look(); }

private:
  int most;
  std::function<void()> look; ///< Called every now and then.
  std::atomic<int> busy = 0;
};

} // namespace

class HttpServer::Server : public httplib::Server {
public:
  Server(Engine &engine, const Tokenizer *tokenizer, ServerOptions given)
      : options(std::move(given)), engine(engine), completions(engine, tokenizer, options, metrics, stopping) {
    new_task_queue = [this] {
      return new Connections(options.connections, [this] {
        if (stopping)
          httplib::Server::stop();
      });
    };
    set_idle_interval(0, 100000);
    set_tcp_nodelay(true);
    set_payload_max_length(options.bytes);
    set_socket_options([](socket_t fd) { // without SO_REUSEPORT, with which two servers could share a port
      int yes = 1;
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    setHandlers();
  }

  int bindAndListen() {
    int port = options.port;
    bool good = port ? bind_to_port(options.host, port) : (port = bind_to_any_port(options.host)) > 0;
    if (!good)
      fail(PCRT_RESOURCE, withErrno("cannot listen on port " + std::to_string(options.port) + " of '" +
                                    printable(options.host) + "'"));
    ::listen(svr_sock_, SOMAXCONN); // cpp-httplib's backlog is 5
    return port;
  }

  std::atomic<bool> stopping = false;

private:
  static constexpr size_t headerBytes = 64 << 10;
  static thread_local Connection *current; ///< The connection that this thread serves.
  std::atomic<int> idle = 0;               ///< Connections that wait for a request.

  bool process_and_close_socket(socket_t fd) override {
    Connection connection(fd, Connection::Seconds(options.sendSeconds));
    if (sheds) {
      std::string text = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: "
                         "close\r\n\r\n";
      connection.lingers = false;
      metrics.response(503);
      return connection.write(text.data(), text.size()) > 0;
    }
    current = &connection;
    auto setUp = [&](httplib::Request &request) {
      connection.allow(options.bytes + headerBytes);
      request.ranges.clear();
      request.headers.erase("Accept-Encoding");
    };
    bool closed = false;
    while (!closed && !connection.mustClose && waitForRequest(connection)) {
      connection.allow(headerBytes);
      if (!process_request(connection, stopping, closed, setUp))
        break;
    }
    return true;
  }

  /// Waits longer than clients keep an idle connection (5 s is common); otherwise a client might send a request just
  /// when the connection is closed. If most threads wait like this, they wait less, because other connections need
  /// them.
  bool waitForRequest(Connection &connection) {
    bool has = false;
    auto begin = std::chrono::steady_clock::now();
    auto most = [&] { return Connection::Seconds(idle * 2 > options.connections ? 5 : 75); };
    ++idle;
    while (!has && !stopping && std::chrono::steady_clock::now() - begin < most())
      has = connection.waits(Connection::Seconds(0.1));
    --idle;
    return has;
  }

  /// Refuses a request by its headers; returns whether it did.
  bool refuses(const httplib::Request &request, httplib::Response &response) const {
    std::string wanted = "Bearer " + options.apiKey, given = request.get_header_value("Authorization");
    bool isSame = given.size() == wanted.size() && CRYPTO_memcmp(given.data(), wanted.data(), given.size()) == 0;
    if (!options.apiKey.empty() && request.path != "/health" && !isSame) {
      respondWithError(response, 401, "the API key is missing or wrong", "invalid_api_key");
      response.set_header("WWW-Authenticate", "Bearer");
      return true;
    }
    std::string length = request.get_header_value("Content-Length"), type = request.get_header_value("Content-Type");
    bool hasBody =
        request.method == "POST" || request.has_header("Transfer-Encoding") || (!length.empty() && length != "0");
    if (!hasBody)
      return false;
    type =
        type.substr(0, type.find_last_not_of(" \t", type.find(';') == type.npos ? type.npos : type.find(';') - 1) + 1);
    if (request.method != "POST")
      respondWithError(response, 405, "only POST requests can have a body");
    // A web page cannot send this type to another site without permission.
    else if (strcasecmp(type.c_str(), "application/json") != 0)
      respondWithError(response, 415, "the Content-Type must be application/json");
    else if (request.has_header("Content-Encoding"))
      respondWithError(response, 415, "a compressed request (Content-Encoding) is not supported");
    else if (length.size() > 18 || length.find_first_not_of("0123456789") != length.npos ||
             request.get_header_value_count("Content-Length") > 1 ||
             (!length.empty() && request.has_header("Transfer-Encoding")))
      respondWithError(response, 400, "the Content-Length is not a number, or the length is given twice");
    else if (!length.empty() && std::stoull(length) > options.bytes)
      respondWithError(response, 413, tooLong());
    else
      return false;
    return true;
  }

  std::string tooLong() const { return "a request can have at most " + std::to_string(options.bytes) + " bytes"; }

  static void close(httplib::Response &response) {
    current->mustClose = true;
    response.set_header("Connection", "close");
  }

  void complete(const httplib::Request &request, httplib::Response &response, const httplib::ContentReader &read,
                bool isChat) {
    std::string body;
    bool isTooLong = false;
    bool good = read([&](const char *bytes, size_t count) {
      isTooLong = body.size() + count > options.bytes;
      if (!isTooLong)
        body.append(bytes, count);
      return !isTooLong;
    });
    if (good)
      return completions.answer(body, isChat, request.version != "HTTP/1.0", *current, response);
    close(response);
    if (isTooLong || response.status == 413)
      respondWithError(response, 413, tooLong());
    else
      respondWithError(response, 400, "the body of the request is incomplete");
  }

  void setHandlers() {
    set_pre_routing_handler([this](const httplib::Request &request, httplib::Response &response) {
      if (!refuses(request, response))
        return HandlerResponse::Unhandled;
      close(response);
      return HandlerResponse::Handled;
    });
    for (bool isChat : {false, true})
      Post(isChat ? "/v1/chat/completions" : "/v1/completions",
           [this, isChat](const httplib::Request &request, httplib::Response &response,
                          const httplib::ContentReader &read) { complete(request, response, read, isChat); });
    Json model = {{"id", options.model}, {"object", "model"}, {"created", time(nullptr)}, {"owned_by", "pc"}};
    std::string one = textOf(model), list = textOf({{"object", "list"}, {"data", Json::array({model})}});
    Get("/v1/models", [list](const httplib::Request &, httplib::Response &response) {
      response.set_content(list, "application/json");
    });
    Get("/v1/models/(.+)", [this, one](const httplib::Request &request, httplib::Response &response) {
      if (request.matches[1] == options.model)
        response.set_content(one, "application/json");
      else
        respondWithError(response, 404, "the model does not exist; this server has '" + options.model + "'",
                         "model_not_found");
    });
    Get("/health", [this](const httplib::Request &, httplib::Response &response) {
      bool isUp = engine.isUp() && !stopping;
      response.status = isUp ? 200 : 503;
      response.set_content(isUp ? R"({"status":"ok"})" : R"({"status":"down"})", "application/json");
    });
    Get("/metrics", [this](const httplib::Request &, httplib::Response &response) {
      response.set_content(metrics.text(), "text/plain; version=0.0.4");
    });
    set_error_handler(HandlerWithResponse([](const httplib::Request &, httplib::Response &response) {
      if (!response.body.empty())
        return HandlerResponse::Unhandled;
      int status = response.status;
      if (status != 404) // after malformed HTTP, the rest cannot be parsed
        close(response);
      respondWithError(response, status, status == 404 ? "there is no such path or method" : "the request is not HTTP");
      return HandlerResponse::Handled;
    }));
    set_exception_handler([](const httplib::Request &, httplib::Response &response, std::exception_ptr) {
      close(response);
      respondWithError(response, 500, "the request could not be answered");
    });
    set_logger(
        [this](const httplib::Request &, const httplib::Response &response) { metrics.response(response.status); });
  }

  ServerOptions options;
  Engine &engine;
  ServerMetrics metrics;
  Completions completions;
};

thread_local Connection *HttpServer::Server::current = nullptr;

HttpServer::HttpServer(Engine &engine, const Tokenizer *tokenizer, ServerOptions options)
    : server(std::make_unique<Server>(engine, tokenizer, std::move(options))) {}
HttpServer::~HttpServer() = default;

int HttpServer::bind() { return server->bindAndListen(); }
void HttpServer::run() { server->listen_after_bind(); }
void HttpServer::stop() { server->stopping = true; }
