//===- Generation.cpp - A run of a program that generates text -------------===//
// Rank 0 reads the lines of requests. Before each step all ranks get the lines that have come, so all run the same
// scheduler. A step gives its tokens to every rank, and rank 0 writes them. In a pipeline, no rank waits for all
// others: rank 0 sends the lines to each of the others, the last stage sends tokens to the other stages, and steps of
// several turns are in flight.
//===----------------------------------------------------------------------===//
#include "run/Generation.h"
#include "base/Failure.h"
#include "base/Printing.h"
#include "checkpoint/Checkpoint.h"
#include "comm/Collective.h"
#include "cpu/CpuDevice.h"
#include "cuda/CudaDevice.h"
#include "data/Init.h"
#include "device/Context.h"
#include "metrics/Summary.h"
#include "run/Results.h"
#include "run/SameRun.h"
#include "schedule/EndTokens.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>
#include <unistd.h>

using namespace pcrt;

namespace {

/// The lines of a file or pipe, which a thread reads. The thread may wait forever, so it is not joined, and it owns
/// everything that it uses.
class LineReader {
public:
  explicit LineReader(int file) : state(std::make_shared<State>()) {
    std::thread([file, state = state] { read(file, *state); }).detach();
  }

  /// Returns the lines that have come since the last call, each with its end. If there are none, waits up to `wait`
  /// for one. Sets `ended` when there will be no more.
  std::string take(std::chrono::milliseconds wait, bool &ended) {
    std::unique_lock<std::mutex> lock(state->mutex);
    state->changed.wait_for(lock, wait, [&] { return !state->lines.empty() || state->ended; });
    ended = state->ended;
    return std::exchange(state->lines, "");
  }

private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::string lines;
    bool ended = false;
  };

  static void read(int file, State &state) {
    std::string rest;
    char buffer[1 << 16];
    for (ssize_t n; (n = ::read(file, buffer, sizeof buffer)) != 0;) {
      if (n < 0 && errno == EINTR)
        continue;
      if (n < 0)
        break;
      rest.append(buffer, size_t(n));
      if (size_t end = rest.rfind('\n'); end != std::string::npos) {
        std::lock_guard<std::mutex> lock(state.mutex);
        state.lines += rest.substr(0, end + 1);
        rest.erase(0, end + 1);
        state.changed.notify_all();
      }
    }
    std::lock_guard<std::mutex> lock(state.mutex);
    state.lines += rest.empty() ? "" : rest + "\n";
    state.ended = true;
    state.changed.notify_all();
  }

  std::shared_ptr<State> state;
};

/// Keeps the tokens of the last step and their probabilities.
class Chosen : public Observer {
public:
  explicit Chosen(const Program &program) : program(program) {
    for (const Output &output : program.outputs) // a step must not allocate
      if (output.kind == "generated") {
        partOf(output).tokens.reserve(size_t(product(output.shape)));
        partOf(output).logprobs.reserve(size_t(product(output.shape)));
      }
  }
  bool wants(int index) const override { return program.outputs[size_t(index)].kind == "generated"; }
  bool wantsInEveryStep() const override { return true; }
  pcrt_status observe(int index, int64_t, void *data, std::string *) override {
    const Output &output = program.outputs[size_t(index)];
    const auto *numbers = static_cast<const float *>(data);
    GenerationOutputs &part = partOf(output);
    if (output.name.starts_with("token"))
      part.tokens.assign(numbers, numbers + product(output.shape));
    else
      part.logprobs.assign(numbers, numbers + product(output.shape));
    return PCRT_OK;
  }

  GenerationOutputs back, prompts;

  /// The end of the names of inputs and outputs for prompts.
  static constexpr const char *ofChunk = ".chunk";

private:
  GenerationOutputs &partOf(const Output &output) { return output.name.ends_with(ofChunk) ? prompts : back; }

  const Program &program;
};

/// A message with lines of requests.
struct Lines {
  int64_t left = 0; ///< The bytes of this message and of those that follow it.
  char bytes[4088] = {};
};

/// One rank.
class GenerationRun {
public:
  GenerationRun(const Program &program, const Options &options, Comm &comm)
      : program(program), options(options), comm(comm), chosen(program) {}

  /// Abandons the device of a run that failed; returns whether the device may continue.
  bool abandon() { return device && device->abandon(); }

  void run() {
    std::string sum = sumOfProgram();
    requireSame(comm, {{"program", sum, program.name + ", " + describeMesh(program.mesh) + ", sum " + sum}});
    if (program.mesh.ranks() != comm.size())
      fail(PCRT_USAGE, otherSize(program, comm.size()));
    checkFlags();
    weights = options.init.empty() ? program.weights : options.init;
    onAllRanks(comm, [&] { openFiles(); });
    scheduler.emplace(shapeOf(program), endTokens);
    lastOutputs.resize(size_t(scheduler->shape().turns));
    openDevice();
    loop();
    if (!options.summary.empty())
      writeSummary(*context, figures, options.summary);
    requireOk(comm, comm.barrier());
  }

private:
  /// Flags of training would have no effect.
  void checkFlags() {
    auto flags = [](const Options &options) {
      std::vector<FlagValue> all = trajectoryFlags(options), shared = sharedFlags(options);
      all.insert(all.end(), shared.begin(), shared.end());
      return all;
    };
    std::vector<FlagValue> given = flags(options), byDefault = flags({});
    for (size_t i = 0; i < given.size(); ++i)
      if (const std::string &name = given[i].first;
          given[i] != byDefault[i] && name != "init" && name != "adapter" && name != "seed" && name != "summary")
        fail(PCRT_USAGE, "--" + name + " does not work with a program that generates; see --help");
    for (const NamedPath &output : outputsOf(options))
      if (!output.path.empty() && output.flag != "--summary")
        fail(PCRT_USAGE, output.flag + " does not work with a program that generates");
    if (!options.adapter.empty() && !program.hasAdapter())
      fail(PCRT_USAGE, "--adapter needs a program compiled with --lora");
  }

  /// Rank 0 opens the pipes of requests and answers; a pipe opens when its other end does.
  void openFiles() {
    std::error_code error;
    if (options.init.empty() && !weights.empty() && !std::filesystem::exists(weights, error))
      fail(PCRT_BAD_DATA, weights + ", the source of the weights when this program was compiled, does not exist; "
                                    "give the new place of the weights with --init DIR|FILE");
    if (std::string directory = directoryOfWeights(weights); !directory.empty())
      endTokens = readEndTokens(directory, int32_t(program.vocabulary));
    if (comm.rank() != 0)
      return;
    auto open = [&](const std::string &path, int standard, int how) {
      int file = path.empty() || path == "-" ? standard : ::open(path.c_str(), how | O_CLOEXEC, 0666);
      if (file < 0)
        fail(PCRT_USAGE, withErrno("cannot open " + path));
      return file;
    };
    std::vector<NamedPath> inputs = filesOfModel("the weights", weights);
    inputs.push_back({"the program", "/proc/self/exe"});
    inputs.push_back({"--requests", options.requests});
    if (std::string why = clashOfOutputs(inputs, {{"--answers", options.answers}, {"--summary", options.summary}});
        !why.empty())
      fail(PCRT_USAGE, why);
    answers = open(options.answers, STDOUT_FILENO, O_WRONLY | O_CREAT | O_TRUNC);
    reader.emplace(open(options.requests, STDIN_FILENO, O_RDONLY));
  }

  void openDevice() {
    Comm::Busy busy(comm);
    Bf16Uses uses;
    if (program.abi.target == PCRT_CPU)
      uses.add(program.abi);
    const Bf16Choice bf16 = agreeOnBf16(uses, comm);
    figures.bf16 = describe(bf16);
    onAllRanks(comm, [&] {
      context.emplace(program, comm);
      device = program.abi.target == PCRT_CPU ? openCpuDevice(program, bf16) : openCudaDevice(program);
      context->device = device.get();
    });
    context->observer = &chosen;
    if (isPipeline())
      addFlows();
    device->prepare(*context);
    std::optional<Pool> helpers;
    Pool &workers = device->threads() ? *device->threads() : helpers.emplace(threadsOfThisRank());
    if (!options.adapter.empty())
      loadAdapter(options.adapter, program, *device, workers, comm);
    if (!weights.empty())
      loadWeights(weights, program, *device, workers, comm);
    onAllRanks(comm, [&] {
      if (weights.empty())
        drawParameters(program, options.seed, comm.rank(), *device, workers);
      if (program.hasAdapter() && options.adapter.empty())
        drawParameters(program, options.seed, comm.rank(), *device, workers, /*adapter=*/true);
      fillConstants(program, comm.rank(), *device);
    });
  }

  bool isPipeline() const { return program.stageAxis >= 0; }
  bool isLastStage() const { return !isPipeline() || program.stage + 1 == int(program.stages.size()); }

  /// Adds the flows of lines, from rank 0 to each other one, and of tokens, from each rank of the last stage to those
  /// with the same coordinates in other stages.
  void addFlows() {
    auto add = [&](int peer, bool sends, int id, int64_t bytes, int slots, const char *name) {
      context->flows.push_back({.peer = peer, .id = id, .sends = sends, .bytes = bytes, .slots = slots, .name = name});
      return int(context->flows.size()) - 1;
    };
    constexpr int ofLines = 1 << 20, ofTokens = ofLines + 1; // these are larger than the numbers of the program's flows
    if (comm.rank() != 0)
      lineFlows = {add(0, false, ofLines, sizeof(Lines), 2, "lines of requests")};
    else
      for (int rank = 1; rank < comm.size(); ++rank)
        lineFlows.push_back(add(rank, true, ofLines, sizeof(Lines), 2, "lines of requests"));
    const auto last = int(program.stages.size()) - 1, stride = int(program.mesh.stride(program.stageAxis));
    auto addTokens = [&](int stage, bool sends) {
      // A step of each turn can be under way.
      tokenFlows.push_back(add(comm.rank() + (stage - program.stage) * stride, sends, ofTokens,
                               int64_t(wordsOfTokens() * sizeof(int32_t)), scheduler->shape().turns,
                               "tokens from the last stage"));
    };
    if (!isLastStage())
      addTokens(last, false);
    else
      for (int stage = 0; stage < last; ++stage)
        addTokens(stage, true);
  }

  /// Gives all ranks the bytes of rank 0.
  std::string share(const std::string &bytes) {
    if (comm.size() == 1)
      return bytes;
    if (isPipeline())
      return sendLines(comm.rank() == 0 ? bytes : "");
    std::vector<int64_t> sizes(size_t(comm.size()));
    auto mine = int64_t(bytes.size());
    requireOk(comm, comm.allGatherBytes(&mine, sizeof mine, sizes.data()));
    std::string sent = bytes, all;
    sent.resize(size_t(sizes[0]));
    all.resize(size_t(sizes[0]) * size_t(comm.size()));
    if (sizes[0])
      requireOk(comm, comm.allGatherBytes(sent.data(), sizes[0], all.data()));
    return all.substr(0, size_t(sizes[0]));
  }

  /// Does the same as share, but sends the bytes in parts and does not wait for slower ranks.
  std::string sendLines(std::string bytes) {
    Lines part;
    size_t at = 0, count = 0;
    do {
      if (comm.rank() == 0) {
        part.left = int64_t(bytes.size() - at);
        count = std::min(sizeof part.bytes, size_t(part.left));
        memcpy(part.bytes, bytes.data() + at, count);
        for (int flow : lineFlows)
          requireOk(comm, comm.send(flow, &part));
      } else {
        requireOk(comm, comm.receive(lineFlows[0], &part));
        count = std::min(sizeof part.bytes, size_t(part.left));
        bytes.append(part.bytes, count);
      }
      at += count;
    } while (part.left > int64_t(count));
    return bytes;
  }

  /// Accepts requests and runs steps, until no request is left and no more can come. The first byte that ranks share is
  /// 'e' if no further requests can come. A turn's chosen tokens are taken just before its next step, so ranks of all
  /// stages take them at the same place among their steps.
  void loop() {
    GenerationStep next;
    for (int64_t number = 0, turn = 0;; turn = (turn + 1) % scheduler->shape().turns) {
      if (scheduler->isOpen())
        endStep(lastOutputs[size_t(turn)]);
      std::string news(1, ' ');
      if (reader) {
        bool ended = false, idle = scheduler->waiting() + scheduler->running() == 0;
        news += reader->take(std::chrono::milliseconds(idle ? 100 : 0), ended);
        news[0] = ended ? 'e' : ' ';
      }
      news = share(news);
      size_t begin = 1;
      for (size_t end; (end = news.find('\n', begin)) != std::string::npos; begin = end + 1)
        takeRequest(std::string_view(news).substr(begin, end - begin));
      if (scheduler->next(next))
        runStep(number++, next, lastOutputs[size_t(turn)]);
      else if (news[0] == 'e' && scheduler->waiting() + scheduler->running() == 0)
        return;
    }
  }

  /// All ranks read the same line, so all make the same decision. A wrong line affects only its own request.
  void takeRequest(std::string_view line) {
    Json id = nullptr;
    auto refuse = [&](const std::string &why, const std::string &field) {
      write({{"id", id}, {"error", {{"message", why}, {"param", field.empty() ? Json(nullptr) : Json(field)}}}});
    };
    try {
      Json json = Json::parse(line);
      if (json.contains("cancel")) {
        if (auto it = byName.find(json["cancel"].dump()); it != byName.end()) {
          scheduler->cancel(it->second);
          forget(it->second);
        }
        return;
      }
      id = json.at("id");
      GenerationRequest request;
      request.prompt = json.at("prompt").get<std::vector<int32_t>>();
      request.maxTokens = json.value("max_tokens", request.maxTokens);
      request.sampling = {json.value("temperature", 0.0f), json.value("top_k", 0), json.value("top_p", 1.0f),
                          json.value("min_p", 0.0f)};
      request.seed = json.value("seed", uint64_t(0));
      if (byName.contains(id.dump()))
        return refuse("a request with this id is running", "id");
      if (request.sampling.temperature > 0 && !samples(program))
        return refuse("this program was compiled with --sampling=false, so temperature must be 0", "temperature");
      if (std::optional<Refusal> why = scheduler->shape().refusal(request))
        return refuse(why->reason, why->field);
      uint64_t number = scheduler->add(std::move(request));
      nameOf[number] = id;
      byName[id.dump()] = number;
    } catch (const Json::exception &error) {
      refuse(std::string("the request is invalid: ") + error.what(), "");
    }
  }

  void forget(uint64_t number) {
    byName.erase(nameOf.at(number).dump());
    nameOf.erase(number);
  }

  /// The tokens of a step, for both of its parts.
  struct Outputs {
    GenerationOutputs back, prompts;
  };

  /// Runs a step. A step without prompts runs only the function for fed-back tokens (`evaluate`).
  void runStep(int64_t number, const GenerationStep &step, Outputs &outputs) {
    for (size_t i = 0; i < program.inputs.size(); ++i)
      fill(program.inputs[i], device->input(number, int(i)),
           program.inputs[i].name.ends_with(Chosen::ofChunk) ? step.prompts : step.back);
    const auto begin = std::chrono::steady_clock::now();
    if (!step.hasPrompts && program.abi.evaluate) {
      const bool hasChunk = scheduler->shape().chunk > 0; // saves the counts of a step with prompts, for the summary
      if (hasChunk)
        context->saveCounts(ofPrompts);
      context->require(device->evaluate(*context, number));
      if (hasChunk)
        context->restoreCounts(ofPrompts);
    } else {
      context->require(device->begin(*context, number));
      context->require(device->finish(*context));
    }
    ++figures.steps;
    figures.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!isLastStage())
      return;
    outputs = {chosen.back, chosen.prompts};
    if (!isPipeline())
      return;
    std::vector<int32_t> words(wordsOfTokens());
    auto to = words.begin();
    for (const GenerationOutputs *part : {&outputs.back, &outputs.prompts}) {
      std::copy(part->tokens.begin(), part->tokens.end(), to);
      to += ptrdiff_t(words.size() / 4);
      std::transform(part->logprobs.begin(), part->logprobs.end(), to,
                     [](float logprob) { return std::bit_cast<int32_t>(logprob); });
      to += ptrdiff_t(words.size() / 4);
    }
    for (int flow : tokenFlows)
      requireOk(comm, comm.send(flow, words.data()));
  }

  /// The words of a message with the tokens of a step: two parts of tokens and of logprobs.
  size_t wordsOfTokens() const { return 4 * size_t(scheduler->shape().groups) * size_t(scheduler->shape().slots); }

  /// Receives the results of a step from the last stage.
  void receive(Outputs &outputs) {
    std::vector<int32_t> words(wordsOfTokens());
    requireOk(comm, comm.receive(tokenFlows[0], words.data()));
    auto from = words.begin();
    for (GenerationOutputs *part : {&outputs.back, &outputs.prompts}) {
      const auto count = ptrdiff_t(words.size() / 4);
      part->tokens.assign(from, from + count);
      part->logprobs.clear();
      std::transform(from + count, from + 2 * count, std::back_inserter(part->logprobs),
                     [](int32_t word) { return std::bit_cast<float>(word); });
      from += 2 * count;
    }
  }

  /// Takes and reports the tokens of a step.
  void endStep(Outputs &outputs) {
    if (!isLastStage())
      receive(outputs);
    for (const TokenEvent &event : scheduler->finish(outputs.back, outputs.prompts)) {
      Json line{{"id", nameOf.at(event.id)}, {"token", event.token}, {"logprob", event.logprob}};
      if (event.reason == FinishReason::NotFinite)
        line = {{"id", nameOf.at(event.id)}, {"error", {{"message", "the logits are not finite"}, {"param", nullptr}}}};
      else if (event.reason != FinishReason::None)
        line["finish_reason"] = event.reason == FinishReason::Stop ? "stop" : "length";
      write(line);
      if (event.reason != FinishReason::None)
        forget(event.id);
    }
    flush();
  }

  /// Copies this rank's block of an input.
  void fill(const Input &input, char *to, const GenerationInputs &inputs) {
    auto is = [&](const char *name) { return input.name.starts_with(name); };
    const void *from = is("tokens")      ? static_cast<const void *>(inputs.tokens.data())
                       : is("slots")     ? inputs.slots.data()
                       : is("positions") ? inputs.positions.data()
                       : is("chosen")    ? inputs.chosen.data()
                       : is("sampling")  ? static_cast<const void *>(inputs.sampling.data())
                                         : inputs.seeds.data();
    forEachRun(input.shape, blockOf(program.mesh, input.shape, input.layout, comm.rank()),
               [&](int64_t block, int64_t whole, int64_t count) {
                 memcpy(to + block * 4, static_cast<const char *>(from) + whole * 4, size_t(count) * 4);
               });
  }

  void write(const Json &line) {
    if (comm.rank() == 0)
      unwritten += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    if (scheduler->running() == 0)
      flush();
  }

  /// A slow reader delays the run. If the reader is gone, the run ends.
  void flush() {
    Comm::Busy busy(comm);
    for (size_t at = 0; at < unwritten.size();) {
      ssize_t n = ::write(answers, unwritten.data() + at, unwritten.size() - at);
      if (n < 0 && errno != EINTR)
        fail(PCRT_RESOURCE,
             withErrno("cannot write answers to " + (options.answers.empty() ? "standard output" : options.answers)));
      at += n > 0 ? size_t(n) : 0;
    }
    unwritten.clear();
  }

  const Program &program;
  const Options &options;
  Comm &comm;
  Chosen chosen;
  std::string weights;
  std::vector<int32_t> endTokens;
  std::optional<LineReader> reader; ///< Rank 0.
  int answers = -1;
  std::string unwritten; ///< Lines of answers.
  std::optional<pcrt_context> context;
  std::unique_ptr<Device> device;
  std::optional<Scheduler> scheduler;
  RunFigures figures;
  pcrt_context::Counts ofPrompts;         ///< The counts of the last step with prompts.
  std::vector<Outputs> lastOutputs;       ///< Of each turn.
  std::vector<int> lineFlows, tokenFlows; ///< Those of this rank.
  std::map<uint64_t, Json> nameOf;        ///< The id that a request's line gave.
  std::map<std::string, uint64_t> byName; ///< By its text.
};

} // namespace

GenerationShape pcrt::shapeOf(const Program &program) {
  GenerationShape shape{.vocabulary = int32_t(program.vocabulary)};
  int32_t allSlots = 0;
  for (const Program *stage : program.stages) {
    for (const Cache &cache : stage->caches)
      shape.groups = int32_t(cache.groups()), allSlots = int32_t(cache.slots()),
      shape.context = int32_t(cache.context());
    for (const Input &input : stage->inputs)
      if (input.name == "slots")
        shape.size = int32_t(input.shape[1]);
      else if (input.name == std::string("slots") + Chosen::ofChunk)
        shape.chunk = int32_t(input.shape[1]);
      else if (input.name == "chosen")
        shape.slots = int32_t(input.shape[1]);
  }
  shape.turns = allSlots / shape.slots;
  return shape;
}

bool pcrt::samples(const Program &program) {
  return std::any_of(program.stages.begin(), program.stages.end(), [](const Program *stage) {
    return std::any_of(stage->inputs.begin(), stage->inputs.end(),
                       [](const Input &input) { return input.name == "sampling"; });
  });
}

void pcrt::runGeneration(const Program &program, const Options &options, Comm &comm) {
  auto run = std::make_unique<GenerationRun>(program, options, comm);
  try {
    run->run();
  } catch (...) {
    if (run->abandon()) [[maybe_unused]]
      GenerationRun *kept = run.release(); // work that still runs on the device reads the run's memory
    throw;
  }
}
