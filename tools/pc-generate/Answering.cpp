//===- Answering.cpp - Requests in, answers out ---------------------------===//
#include "Answering.h"
#include "base/Failure.h"

#include <cerrno>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

using namespace pcrt;
using Json = nlohmann::json;

Answering::Answering(Engine &engine, const Tokenizer *tokenizer, const TextRequest &defaults, Form form, FILE *output)
    : engine(engine), tokenizer(tokenizer), defaults(defaults), form(form), output(output),
      wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake < 0)
    fail(PCRT_RESOURCE, withErrno("cannot wait for tokens"));
  if (tokenizer)
    encoder.emplace(*tokenizer);
}

Answering::~Answering() {
  for (const Entry &entry : entries) // from now on, callbacks are not allowed
    engine.cancel(entry.id);
  close(wake);
}

void Answering::submit(TextRequest request) {
  if (request.text && !tokenizer)
    throw RequestError{"prompt", "the model has no tokenizer.json, so the prompt must be token ids"};
  if (tokenizer)
    encodePrompt(request, *tokenizer, *encoder);
  int32_t &most = request.generation.maxTokens;
  if (most == 0)
    most = std::clamp(engine.shape().context - int32_t(request.generation.prompt.size()), 1, 128);
  if (std::optional<Refusal> refusal = engine.shape().refusal(request.generation))
    throw RequestError{refusal->field, refusal->reason};
  Entry &entry = entries.back();
  entry.answer.emplace(request, form == Form::Ids && request.stops.empty() ? nullptr : tokenizer);
  // The id is known only after the call, but the first tokens may come before it returns.
  uint64_t number = uint64_t(requests);
  entry.id = engine.submit(request.generation, [this, number](const auto &event) {
    std::lock_guard<std::mutex> lock(mutex);
    events.emplace_back(number, event);
    uint64_t one = 1;
    [[maybe_unused]] ssize_t written = ::write(wake, &one, sizeof one);
  });
}

void Answering::answer(TextRequest request) {
  entries.emplace_back();
  ++requests;
  try {
    submit(std::move(request));
  } catch (const RequestError &) {
    entries.clear();
    throw;
  }
  while (!entries.empty() && engine.isUp() && !readerGone)
    wait(-1);
  wait(-1); // tokens that came before the program ended
}

void Answering::takeLine(std::string_view line) {
  if (line.find_first_not_of(" \t\r") == line.npos)
    return;
  Entry &entry = entries.emplace_back();
  entry.name = requests++;
  try {
    Json json = parseRequest(line);
    if (json.is_object() && json.contains("id"))
      entry.name = json["id"];
    TextRequest request = readRequest(json, defaults);
    if (request.streams)
      throw RequestError{"stream", "an answer here is one line; leave this field out"};
    request.id = entry.name;
    submit(std::move(request));
  } catch (const RequestError &error) {
    entry.error = error.json();
  }
}

void Answering::answerLines(int file) {
  // Limits of the number of requests, and of the bytes of a line.
  constexpr size_t mostAtOnce = 4096, mostBytes = 64 << 20;
  std::string text;
  char buffer[1 << 16];
  for (bool ended = false; (!ended || !entries.empty()) && engine.isUp() && !readerGone;) {
    if (!wait(ended || entries.size() >= mostAtOnce ? -1 : file))
      continue;
    ssize_t count = read(file, buffer, sizeof buffer);
    if (count < 0 && (errno == EINTR || errno == EAGAIN))
      continue;
    if (count < 0)
      fail(PCRT_BAD_DATA, withErrno("cannot read requests"));
    ended = count == 0;
    text.append(buffer, size_t(count));
    if (ended && !text.empty())
      text += '\n';
    size_t begin = 0;
    for (size_t end; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
      takeLine(std::string_view(text).substr(begin, end - begin));
    text.erase(0, begin);
    if (text.size() > mostBytes)
      fail(PCRT_BAD_DATA,
           "request " + std::to_string(requests) + " is longer than " + std::to_string(mostBytes) + " bytes");
    writeAnswers();
  }
  wait(-1); // tokens that came before the program ended
}

bool Answering::wait(int file) {
  pollfd polled[] = {{wake, POLLIN, 0}, {file, POLLIN, 0}};
  constexpr int milliseconds = 100; // after that time, the caller asks whether the engine still runs
  if (poll(polled, file < 0 ? 1 : 2, milliseconds) < 0 && errno != EINTR)
    fail(PCRT_INTERNAL, withErrno("cannot wait for tokens"));
  uint64_t ignored;
  [[maybe_unused]] ssize_t count = read(wake, &ignored, sizeof ignored);
  std::vector<Event> taken;
  {
    std::lock_guard<std::mutex> lock(mutex);
    taken.swap(events);
  }
  for (const Event &event : taken)
    take(event);
  if (!taken.empty())
    writeAnswers();
  return file >= 0 && polled[1].revents;
}

void Answering::take(const Event &event) {
  auto &[number, what] = event;
  size_t fromEnd = size_t(uint64_t(requests) - number); // numbers count all requests, and the last entry is the newest
  if (fromEnd >= entries.size() || entries[entries.size() - 1 - fromEnd].answer->isComplete())
    return; // it ended early
  Entry &entry = entries[entries.size() - 1 - fromEnd];
  if (const auto *error = std::get_if<RequestError>(&what)) {
    entry.error = error->json();
  } else {
    entry.answer->push(std::get<TokenEvent>(what));
    if (entry.answer->endedEarly())
      engine.cancel(entry.id);
  }
}

void Answering::writeAnswers() {
  while (!entries.empty()) {
    Entry &entry = entries.front();
    bool isDone = !entry.error.is_null() || entry.answer->isComplete();
    if (form == Form::Lines) {
      if (!isDone)
        break;
      Json line = entry.error.is_null() ? entry.answer->json() : Json{{"id", entry.name}, {"error", entry.error}};
      fprintf(output, "%s\n", textOf(line).c_str());
    } else if (entry.error.is_null()) {
      const std::string &text = entry.answer->text();
      const std::vector<int32_t> &ids = entry.answer->tokens();
      if (form == Form::Text)
        fwrite(text.data() + entry.written, 1, text.size() - entry.written, output);
      else
        for (size_t i = entry.written; i < ids.size(); ++i)
          fprintf(output, i ? " %d" : "%d", ids[i]);
      entry.written = form == Form::Text ? text.size() : ids.size();
      if (isDone)
        fputc('\n', output);
    } else {
      fprintf(stderr, "pc-generate: error: %s\n", entry.error["message"].get<std::string>().c_str());
    }
    if (!isDone)
      break;
    failed += !entry.error.is_null() || entry.answer->failed();
    entries.pop_front();
  }
  if (fflush(output) == 0)
    return;
  readerGone = errno == EPIPE;
  if (!readerGone)
    fail(PCRT_RESOURCE, withErrno("cannot write answers"));
}
