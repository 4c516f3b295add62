//===- Tokenize.cpp - Files of text to files of tokens, and back -----------===//
// Blocks lie in a ring of places. The main thread writes the tokens of the block in a place before it reads the next
// block into it. So memory is bounded, and the output has the order of the input.
//===----------------------------------------------------------------------===//
#include "Tokenize.h"
#include "base/FileStream.h"
#include "base/InputFile.h"
#include "base/SignalMask.h"
#include "data/Data.h"
#include "data/TokenWriter.h"
#include "tokenizer/Tokenizer.h"

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

using namespace pcrt;

static volatile sig_atomic_t stopped = 0;

void pcrt::stopTokenizing(int signal) { stopped = signal; }

int pcrt::stopSignal() { return stopped; }

/// Throws if a signal has come.
static void checkStopped() {
  if (stopped)
    fail(PCRT_INTERNAL, "stopped by signal " + std::to_string(int(stopped)));
}

namespace {

/// Shows on a terminal how far the work is.
class Progress {
public:
  explicit Progress(const std::vector<std::string> &files) : isShown(isatty(STDERR_FILENO)) {
    struct stat found;
    for (const std::string &file : files)
      total += file != "-" && stat(file.c_str(), &found) == 0 ? int64_t(found.st_size) : 0;
  }
  ~Progress() {
    if (width)
      fprintf(stderr, "\r%*s\r", width, "");
  }

  void show(int64_t bytes, int64_t tokens) {
    auto now = std::chrono::steady_clock::now();
    if (!isShown || now - last < std::chrono::milliseconds(200))
      return;
    last = now;
    double seconds = std::chrono::duration<double>(now - begin).count();
    double share = total ? std::min(1.0, double(bytes) / double(total)) : 0;
    constexpr int cells = 24;
    std::string bar(size_t(share * cells), '#');
    width = fprintf(stderr, "\r[%-*s] %3.0f %%  %.1f MB/s  %lld tokens", cells, bar.c_str(), 100 * share,
                    double(bytes) / 1e6 / seconds, static_cast<long long>(tokens)) -
            1;
  }

private:
  bool isShown;
  int64_t total = 0;
  int width = 0;
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now(), last = begin;
};

/// The tokens that are added to every document.
struct Frame {
  TokenIds before, after;
};

/// A block and its tokens.
struct Place {
  enum { Empty, Read, Done } state = Empty;
  TextBlock block;
  TokenIds tokens;
  int64_t documents = 0, skipped = 0;
  std::optional<Failure> failure;
};

/// Threads that tokenize blocks.
class Workers {
public:
  Workers(const Tokenizer &tokenizer, const Frame &frame, const std::string &field, int threads)
      : tokenizer(tokenizer), frame(frame), field(field), places(size_t(4 * threads)) {
    SignalsMasked masked; // the main thread handles signals
    for (int i = 0; i < threads; ++i)
      all.emplace_back([this] { work(); });
  }
  ~Workers() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      ended = true;
    }
    changed.notify_all();
    for (std::thread &thread : all)
      thread.join();
  }

  /// Waits until no thread works on block `number`, and returns its place.
  Place &wait(size_t number) {
    Place &place = places[number % places.size()];
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return place.state != Place::Read; });
    return place;
  }
  /// Lets threads work on block `number`, which must be the next one.
  void start(size_t number) {
    {
      std::lock_guard<std::mutex> lock(mutex);
      places[number % places.size()].state = Place::Read;
      available = number + 1;
    }
    changed.notify_all();
  }
  size_t size() const { return places.size(); }

private:
  void work() {
    Encoder encoder(tokenizer);
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return ended || taken < available; });
      if (ended)
        return;
      Place &place = places[taken++ % places.size()];
      lock.unlock();
      try {
        encode(place, encoder);
      } catch (const Failure &failure) {
        place.failure = failure;
      } catch (const std::bad_alloc &) {
        place.failure = Failure{PCRT_RESOURCE, place.block.file + ": there is not enough memory for a document"};
      }
      lock.lock();
      place.state = Place::Done;
      changed.notify_all();
    }
  }

  void encode(Place &place, Encoder &encoder) {
    place.tokens.clear();
    place.documents = place.skipped = 0;
    forEachDocument(place.block, field, [&](const std::string &text, const std::string &where) {
      if (text.empty()) {
        ++place.skipped;
        return;
      }
      TokenIds &to = place.tokens;
      to.insert(to.end(), frame.before.begin(), frame.before.end());
      try {
        encoder.encode(text, to);
      } catch (const Failure &failure) {
        fail(failure.status, where + ": " + failure.message);
      }
      to.insert(to.end(), frame.after.begin(), frame.after.end());
      ++place.documents;
    });
  }

  const Tokenizer &tokenizer;
  const Frame &frame;
  const std::string &field;
  std::vector<Place> places;
  std::vector<std::thread> all;
  std::mutex mutex;
  std::condition_variable changed;
  size_t available = 0, taken = 0; ///< The number of blocks read so far, and of those given to threads.
  bool ended = false;
};

/// Returns the value of a key in a JSON file next to the tokenizer, or null if there is none.
Json besideTokenizer(const Tokenizer &tokenizer, const char *file, const char *key) {
  std::string path = std::filesystem::path(tokenizer.path()).parent_path() / file;
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return nullptr;
  Json json = Json::parse(InputFile(path).text(), nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json.value(key, Json()) : nullptr;
}

/// The token after each document: the one that --end names, or the model's end of sequence.
std::optional<uint32_t> endOfDocument(const Tokenizer &tokenizer, const std::string &given) {
  if (given == "none")
    return std::nullopt;
  if (!given.empty()) {
    bool isNumber = given.size() < 9 && given.find_first_not_of("0123456789") == std::string::npos;
    std::optional<uint32_t> id = isNumber ? uint32_t(std::stoul(given)) : tokenizer.id(given);
    if (id && *id < tokenizer.end())
      return id;
    fail(PCRT_USAGE, "--end: '" + printable(given) + "' is neither a token of " + tokenizer.path() +
                         " nor an id below " + std::to_string(tokenizer.end()));
  }
  Json name = besideTokenizer(tokenizer, "tokenizer_config.json", "eos_token");
  if (name.is_object())
    name = name.value("content", Json());
  if (name.is_string())
    if (std::optional<uint32_t> id = tokenizer.id(name.get<std::string>()))
      return id;
  Json id = besideTokenizer(tokenizer, "config.json", "eos_token_id");
  if (id.is_number_unsigned() && id.get<uint64_t>() < tokenizer.end())
    return id.get<uint32_t>();
  fail(PCRT_USAGE, "no file next to " + tokenizer.path() +
                       " names the token that ends a document; give --end TOKEN, or --end none");
}

Frame frameOf(const Tokenizer &tokenizer, const TokenizeOptions &options, std::optional<uint32_t> end) {
  Frame frame;
  if (options.usesTemplate)
    frame = {tokenizer.before(), tokenizer.after()};
  if (end && (frame.after.empty() || frame.after.back() != *end))
    frame.after.push_back(*end);
  return frame;
}

} // namespace

void pcrt::tokenize(const TokenizeOptions &options) {
  Tokenizer tokenizer(options.tokenizer);
  std::optional<uint32_t> end = endOfDocument(tokenizer, options.end);
  Frame frame = frameOf(tokenizer, options, end);
  TokenWriter writer(options.output, tokenizer.end());
  Progress progress(options.inputs);
  int threads = options.threads ? options.threads : int(std::max(1u, std::thread::hardware_concurrency()));
  Workers workers(tokenizer, frame, options.field, threads);
  int64_t documents = 0, skipped = 0, bytes = 0;
  auto write = [&](Place &place) {
    checkStopped();
    if (place.state == Place::Empty)
      return;
    if (place.failure)
      throw *place.failure;
    writer.write(place.tokens);
    documents += place.documents, skipped += place.skipped;
    place.state = Place::Empty;
  };
  size_t number = 0;
  for (const std::string &file : options.inputs) {
    auto reader = openDocuments(file, options.format.value_or(formatOf(file)), options.field);
    while (true) {
      Place &place = workers.wait(number);
      write(place);
      if (!reader->next(place.block))
        break;
      workers.start(number++);
      progress.show(bytes + reader->position(), writer.count());
    }
    bytes += reader->position();
  }
  for (size_t i = 0; i < workers.size(); ++i)
    write(workers.wait(number + i));
  if (writer.count() == 0)
    fail(PCRT_BAD_DATA, "the input has no text");
  writer.finish();
  printf("%s: %lld tokens of %lld documents, %d bits, vocabulary %u", options.output.c_str(),
         static_cast<long long>(writer.count()), static_cast<long long>(documents), 8 * writer.bytes(),
         tokenizer.end());
  if (skipped)
    printf("; empty documents skipped: %lld", static_cast<long long>(skipped));
  if (end)
    printf("; documents end with token %u (pc-import --documents=%u)", *end, *end);
  printf("\n");
}

void pcrt::decode(const TokenizeOptions &options) {
  Tokenizer tokenizer(options.tokenizer);
  OutputFile file;
  bool isFile = !options.output.empty() && options.output != "-";
  auto failToWrite = [&] {
    fail(PCRT_RESOURCE, withErrno("cannot write " + (isFile ? options.output : "standard output")));
  };
  if (isFile && !file.open(options.output))
    failToWrite();
  int64_t offset = 0;
  auto write = [&](const std::string &text) {
    bool good = isFile ? writeAll(file.descriptor(), text.data(), int64_t(text.size()), offset)
                       : fwrite(text.data(), 1, text.size(), stdout) == text.size();
    if (!good)
      failToWrite();
    offset += int64_t(text.size());
  };
  for (const std::string &input : options.inputs) {
    TokenFile tokens(input);
    StreamDecoder decoder(tokenizer, /*skipsSpecial=*/false);
    std::vector<int32_t> some(1 << 16);
    for (int64_t at = 0; at < tokens.count(); at += int64_t(some.size())) {
      checkStopped();
      some.resize(size_t(std::min<int64_t>(int64_t(some.size()), tokens.count() - at)));
      tokens.read(at, int64_t(some.size()), tokenizer.end(), some.data());
      std::string text;
      for (int32_t token : some)
        text += decoder.push(uint32_t(token));
      write(text);
    }
    write(decoder.finish());
  }
  if (isFile ? !file.commit() : fflush(stdout) != 0)
    failToWrite();
}
