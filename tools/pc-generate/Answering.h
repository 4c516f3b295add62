//===- Answering.h - Requests in, answers out -----------------------------===//
// One thread reads requests, sends them to the engine, and writes answers; the engine's thread only queues tokens.
//===----------------------------------------------------------------------===//
#ifndef PC_GENERATE_ANSWERING_H
#define PC_GENERATE_ANSWERING_H

#include "generate/Answers.h"
#include "generate/Engine.h"

#include <cstdio>
#include <deque>

/// The form of prompts and answers.
enum class Form {
  Text,  ///< One prompt; the text of its answer is written while it is generated.
  Ids,   ///< Like Text, with token ids.
  Lines, ///< Lines of JSON, whose answers are lines in the same order.
};

/// Sends requests to an engine and writes the answers. It borrows everything.
class Answering {
public:
  /// `defaults` has the values of absent fields; maxTokens 0 means at most 128 tokens, or fewer if the context has no
  /// room for them. `tokenizer` may be null.
  Answering(pcrt::Engine &engine, const pcrt::Tokenizer *tokenizer, const pcrt::TextRequest &defaults, Form form,
            FILE *output);
  ~Answering();

  /// Answers one request. Throws RequestError if it is wrong.
  void answer(pcrt::TextRequest request);
  /// Answers the lines of a file until it ends.
  void answerLines(int file);

  /// Whether the program answered everything; otherwise it has ended early, or nothing reads the answers any more.
  bool isComplete() const { return entries.empty() && !readerGone; }
  bool isReaderGone() const { return readerGone; }
  /// The number of requests that got an error.
  int failures() const { return failed; }

private:
  /// A request whose answer is not written yet.
  struct Entry {
    uint64_t id = 0; ///< The engine's.
    nlohmann::json name;
    std::optional<pcrt::TextAnswer> answer;
    nlohmann::json error = nullptr;
    size_t written = 0; ///< Bytes of its text, or tokens.
  };

  using Event = std::pair<uint64_t, std::variant<pcrt::TokenEvent, pcrt::RequestError>>;

  void submit(pcrt::TextRequest request);
  void takeLine(std::string_view line);
  /// Waits for tokens, or for `file` unless it is negative, and writes the new text. Returns whether `file` is ready.
  bool wait(int file);
  void take(const Event &event);
  void writeAnswers();

  pcrt::Engine &engine;
  const pcrt::Tokenizer *tokenizer;
  const pcrt::TextRequest &defaults;
  Form form;
  FILE *output;
  std::optional<pcrt::Encoder> encoder;
  std::deque<Entry> entries; ///< In the order of requests.
  int64_t requests = 0;
  int failed = 0;
  bool readerGone = false;
  int wake; ///< Readable if there are events.
  std::mutex mutex;
  std::vector<Event> events;
};

#endif
