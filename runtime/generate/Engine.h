//===- Engine.h - What answers requests -------------------------------------===//
// Any thread submits and cancels requests. A compiled program answers them in other processes: requests and tokens are
// lines of JSON in two pipes (run/Generation.h).
//===----------------------------------------------------------------------===//
#ifndef PCRT_GENERATE_ENGINE_H
#define PCRT_GENERATE_ENGINE_H

#include "generate/Requests.h"

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <variant>

namespace pcrt {

/// Answers requests. Any number of threads may use it.
class Engine {
public:
  /// Gets a token, or why the request ended without one.
  using Callback = std::function<void(const std::variant<TokenEvent, RequestError> &)>;

  virtual ~Engine() = default;
  virtual const GenerationShape &shape() const = 0;
  /// Starts a request, which must fit the shape, and returns its id. The callback gets its tokens in order, up to the
  /// one with a reason or the error, from another thread. It must return soon, and must not call the engine.
  virtual uint64_t submit(const GenerationRequest &request, Callback callback) = 0;
  /// Ends a request early. There are no calls of its callback afterwards. An id of a request that ended is ignored.
  virtual void cancel(uint64_t id) = 0;
  /// Whether the model still runs. If it does not, there are no more calls of callbacks.
  virtual bool isUp() const = 0;
};

/// A program that another process runs. SIGPIPE must be ignored, since that process may end at any time.
class ProgramEngine : public Engine {
public:
  /// The ends of the program's pipes, which this object then owns: for --requests and --answers.
  ProgramEngine(GenerationShape shape, int requests, int answers);
  /// Ends the requests, so that the program ends, and waits for that.
  ~ProgramEngine() override;
  ProgramEngine(const ProgramEngine &) = delete;
  ProgramEngine &operator=(const ProgramEngine &) = delete;

  const GenerationShape &shape() const override { return program; }
  uint64_t submit(const GenerationRequest &request, Callback callback) override;
  void cancel(uint64_t id) override;
  bool isUp() const override { return up; }

private:
  void send(const nlohmann::json &line);
  void readAnswers();
  /// Handles a line of the program's output. Returns false if it is not a valid line.
  bool take(std::string_view line);

  GenerationShape program;
  int requests, answers;
  std::mutex mutex;
  std::map<uint64_t, Callback> callbacks; ///< By id.
  uint64_t lastId = 0;
  std::atomic<bool> up = true;
  std::thread reader;
};

} // namespace pcrt

#endif // PCRT_GENERATE_ENGINE_H
