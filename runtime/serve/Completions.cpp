//===- Completions.cpp - Requests of a server and their answers -----------===//
// The thread of a connection waits for tokens in short turns, so that it sees a client that is gone, the end of its
// time, and an engine that is no longer up.
//===----------------------------------------------------------------------===//
#include "serve/Completions.h"
#include "base/Failure.h"
#include "generate/Answers.h"

#include <condition_variable>
#include <ctime>
#include <random>

using namespace pcrt;
using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

void pcrt::respondWithError(httplib::Response &response, int status, const std::string &message, const char *code,
                            const std::string &field) {
  Json error = {{"message", message},
                {"type", status < 500 ? "invalid_request_error" : "server_error"},
                {"param", field.empty() ? Json() : Json(field)},
                {"code", code ? Json(code) : Json()}};
  response.status = status;
  response.set_content(textOf({{"error", error}}), "application/json");
}

namespace {

/// The reason why a request has no answer.
struct ServeError {
  int status;
  const char *outcome; ///< For metrics.
  std::string message;
  std::string field = {}; ///< The field that is wrong.
};

/// Tokens on their way from the engine's thread to the connection's.
class Tokens {
public:
  using Event = std::variant<TokenEvent, RequestError>;

  void push(const Event &event) {
    {
      std::lock_guard<std::mutex> lock(mutex);
      events.push_back(event);
    }
    changed.notify_one();
  }
  std::vector<Event> wait(std::chrono::milliseconds most) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait_for(lock, most, [&] { return !events.empty(); });
    return std::exchange(events, {});
  }

private:
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Event> events;
};

/// Converts a choice of a completion to a choice of a chat, whose text is in `key`.
Json chatChoice(const Json &choice, const char *key) {
  Json logprobs;
  if (choice["logprobs"].is_object()) {
    const Json &texts = choice["logprobs"]["tokens"], &values = choice["logprobs"]["token_logprobs"];
    logprobs["content"] = Json::array();
    for (size_t i = 0; i < texts.size(); ++i) {
      auto text = texts[i].get<std::string>();
      logprobs["content"].push_back({{"token", text},
                                     {"logprob", values[i]},
                                     {"bytes", std::vector<uint8_t>(text.begin(), text.end())},
                                     {"top_logprobs", Json::array()}});
    }
  }
  return {{"index", 0},
          {key, {{"role", "assistant"}, {"content", choice["text"]}}},
          {"token_ids", choice["token_ids"]},
          {"logprobs", logprobs},
          {"finish_reason", choice["finish_reason"]}};
}

/// A chat as a completion whose prompt is `prompt`.
Json completionOf(Json chat, const std::string &prompt) {
  chat.erase("messages");
  if (chat.contains("prompt"))
    throw RequestError{"prompt", "a chat takes messages instead of a prompt"};
  chat["prompt"] = prompt;
  if (chat.contains("max_completion_tokens")) {
    chat["max_tokens"] = chat["max_completion_tokens"];
    chat.erase("max_completion_tokens");
  }
  if (chat.contains("logprobs") && !chat["logprobs"].is_boolean() && !chat["logprobs"].is_null())
    throw RequestError{"logprobs", "it takes true or false"};
  if (Json top = chat.value("top_logprobs", Json()); !top.is_null() && top != 0)
    throw RequestError{"top_logprobs", "only the probabilities of the tokens in the answer are known, so it takes 0"};
  chat.erase("top_logprobs");
  return chat;
}

} // namespace

/// A request that the engine runs. The destructor ends it if it still runs.
class Completions::Running {
public:
  Running(Completions &owner, const TextRequest &request, bool isChat, Connection &connection)
      : owner(owner), connection(connection), answer(request, owner.tokenizer), isChat(isChat),
        streamsUsage(request.streamsUsage), promptTokens(request.generation.prompt.size()) {
    if (++owner.active > owner.options.requests) {
      --owner.active;
      throw ServeError{429, "", "there are too many requests; try again later"};
    }
    owner.metrics.begin();
    head = {{"id", request.id}, {"created", time(nullptr)}, {"model", owner.options.model}};
    if (request.id.is_null())
      head["id"] =
          (isChat ? "chatcmpl-" : "cmpl-") + std::to_string(time(nullptr)) + "-" + std::to_string(++owner.count);
    id =
        owner.engine.submit(request.generation, [tokens = tokens](const Tokens::Event &event) { tokens->push(event); });
  }
  ~Running() {
    if (!answer.isComplete() || answer.endedEarly())
      owner.engine.cancel(id);
    const char *outcome = error ? error->outcome : "cancelled";
    if (answer.isComplete())
      outcome = answer.choice()["finish_reason"] == "stop" ? "stop" : "length";
    owner.metrics.end(outcome, promptTokens, answer.tokens().size(), seconds());
    --owner.active;
  }
  Running(const Running &) = delete;
  Running &operator=(const Running &) = delete;

  /// Waits for tokens. Throws ServeError if there is no answer.
  void wait() {
    for (const Tokens::Event &event : tokens->wait(std::chrono::milliseconds(20))) {
      if (const auto *refused = std::get_if<RequestError>(&event))
        stop({refused->field.empty() ? 500 : 400, "error", refused->json()["message"], refused->field});
      if (answer.tokens().empty())
        owner.metrics.firstToken(seconds());
      answer.push(std::get<TokenEvent>(event));
    }
    if (answer.isComplete())
      return;
    if (!owner.engine.isUp())
      stop({503, "error", "the model does not run"});
    if (owner.stopping)
      stop({503, "cancelled", "the server is stopping"});
    if (connection.isGone())
      stop({499, "cancelled", "the client is gone"});
    if (seconds() > owner.options.seconds)
      stop({504, "timeout", "the answer takes longer than " + std::to_string(int(owner.options.seconds)) + " seconds"});
  }

  bool isComplete() const { return answer.isComplete(); }
  Json whole() const {
    Json json = head;
    Json choice = answer.choice();
    json["object"] = isChat ? "chat.completion" : "text_completion";
    json["choices"] = Json::array({isChat ? chatChoice(choice, "message") : choice});
    json["usage"] = answer.usage();
    return json;
  }
  /// Waits, and writes the parts that are ready. Returns false if the client does not read them.
  bool streamTo(httplib::DataSink &sink) {
    try {
      wait();
    } catch (const ServeError &failed) {
      httplib::Response response;
      respondWithError(response, failed.status, failed.message, nullptr, failed.field);
      bool good = write(sink, response.body);
      sink.done();
      return good;
    }
    if (answer.hasNext()) {
      Json choice = answer.nextChoice();
      if (!write(sink, textOf(part(Json::array({isChat ? chatChoice(choice, "delta") : choice}), nullptr))))
        return false;
    }
    if (!answer.isComplete())
      return true;
    if (streamsUsage && !write(sink, textOf(part(Json::array(), answer.usage()))))
      return false;
    bool good = write(sink, "[DONE]");
    sink.done();
    return good;
  }

private:
  [[noreturn]] void stop(ServeError why) {
    error = why;
    throw why;
  }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin).count(); }
  Json part(Json choices, Json usage) const {
    Json json = head;
    json["object"] = isChat ? "chat.completion.chunk" : "text_completion";
    json["choices"] = std::move(choices);
    if (streamsUsage)
      json["usage"] = std::move(usage);
    return json;
  }
  static bool write(httplib::DataSink &sink, const std::string &text) {
    std::string event = "data: " + text + "\n\n";
    return sink.write(event.data(), event.size());
  }

  Completions &owner;
  Connection &connection;
  TextAnswer answer;
  bool isChat, streamsUsage;
  size_t promptTokens;
  std::shared_ptr<Tokens> tokens = std::make_shared<Tokens>(); ///< Shared with the engine's callback.
  uint64_t id = 0;
  Json head;
  std::optional<ServeError> error;
  Clock::time_point begin = Clock::now();
};

TextRequest Completions::read(const std::string &body, bool isChat) {
  Json json = parseRequest(body);
  if (!json.is_object())
    throw RequestError{"", "a request must be a JSON object"};
  if (Json model = json.value("model", Json()); model.is_string() && model != options.model)
    throw ServeError{404, "",
                     "the model '" + printable(model.get<std::string>()) + "' does not exist; this server has '" +
                         options.model + "'"};
  TextRequest defaults = options.defaults;
  std::random_device random;
  defaults.generation.seed = uint64_t(random()) << 32 | random();
  if (!isChat)
    return readRequest(json, defaults);
  if (!json.value("messages", Json()).is_array())
    throw RequestError{"messages", "it takes a list of messages"};
  defaults.generation.maxTokens = 0; // as many tokens as the context has room for
  return readRequest(completionOf(json, options.renderChat(json["messages"])), defaults);
}

void Completions::encode(TextRequest &request, bool isChat) {
  if (!request.text)
    return;
  if (!tokenizer)
    throw RequestError{"prompt", "the model has no tokenizer, so it takes a list of token ids"};
  std::unique_ptr<Encoder> encoder;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!encoders.empty()) {
      encoder = std::move(encoders.back());
      encoders.pop_back();
    }
  }
  if (!encoder)
    encoder = std::make_unique<Encoder>(*tokenizer);
  encodePrompt(request, *tokenizer, *encoder, /*usesTemplate=*/!isChat);
  std::lock_guard<std::mutex> lock(mutex);
  encoders.push_back(std::move(encoder));
}

void Completions::answer(const std::string &body, bool isChat, bool hasChunks, Connection &connection,
                         httplib::Response &response) {
  try {
    if (isChat && !options.renderChat)
      throw ServeError{501, "",
                       "the chat template of this model cannot be rendered; render it in the client, and send "
                       "the text or its tokens to /v1/completions"};
    TextRequest request = read(body, isChat);
    encode(request, isChat);
    GenerationRequest &generation = request.generation;
    if (isChat && generation.maxTokens == 0)
      generation.maxTokens = std::max(1, engine.shape().context - int32_t(generation.prompt.size()));
    if (std::optional<Refusal> refusal = engine.shape().refusal(generation))
      throw RequestError{refusal->field, refusal->reason};
    if (!engine.isUp())
      throw ServeError{503, "", "the model does not run"};
    auto running = std::make_shared<Running>(*this, request, isChat, connection);
    if (!request.streams) {
      while (!running->isComplete())
        running->wait();
      response.set_content(textOf(running->whole()), "application/json");
      return;
    }
    response.set_header("Cache-Control", "no-cache");
    auto provide = [running](size_t, httplib::DataSink &sink) { return running->streamTo(sink); };
    connection.mustClose |= !hasChunks;
    if (hasChunks)
      response.set_chunked_content_provider("text/event-stream", provide);
    else
      response.set_content_provider("text/event-stream", provide);
  } catch (const RequestError &error) {
    respondWithError(response, 400, error.json()["message"], nullptr, error.field);
  } catch (const ServeError &error) {
    const char *code = error.status == 404 ? "model_not_found" : error.status == 429 ? "rate_limit_exceeded" : nullptr;
    respondWithError(response, error.status, error.message, code, error.field);
  } catch (const Failure &failure) {
    respondWithError(response, 500, failure.message);
  } catch (const std::bad_alloc &) {
    respondWithError(response, 500, "there is not enough memory");
  }
}
