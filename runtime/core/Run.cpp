//===- Run.cpp - one run of a compiled program ----------------------------===//
#include "core/Run.h"
#include "core/Checkpoint.h"
#include "core/Collective.h"
#include "core/Context.h"
#include "core/Data.h"
#include "core/Failure.h"
#include "core/Init.h"
#include "core/Metrics.h"
#include "core/Outputs.h"
#include "core/SameRun.h"
#include "core/Stop.h"
#include "core/Summary.h"
#include "device/cuda/Kernels.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <set>

using namespace pcrt;

namespace {

/// Everything that a run holds, made in the order of the members.
class Run {
public:
  Run(const Program &program, const Options &options, Comm &comm)
      : program(program), options(options), comm(comm), pool(program.abi.target == PCRT_CPU ? threadsOfThisRank() : 1) {
    this->options.weightDecay = options.weightDecay.value_or(program.optimizer == "adamw" ? 1e-2 : 0);
  }

  void run() {
    programSum = sumOfProgram();
    requireSame(comm,
                {{"program", programSum, program.name + ", " + describeMesh(program.mesh) + ", sum " + programSum}});
    checkRequest();
    openData();
    requireSame(comm, sharedFacts());
    followTrajectory();
    openFiles();
    fillArena();
    if (firstStep >= options.steps && (!options.dumpGrads.empty() || !options.dumpLogits.empty()))
      fail(PCRT_USAGE, "no step is run before --steps " + std::to_string(options.steps) +
                           ": there is nothing for --dump-grads or --dump-logits");
    if (metrics)
      metrics->begin(firstStep);
    double evaluated = 0;
    StopCheck stop(comm);
    for (updates = firstStep; updates < options.steps; ++updates) {
      if (saver && stop.isDue(updates))
        break;
      runStep(updates);
      evaluated += outputs->loss();
    }
    if (metrics)
      metrics->finish();
    if (!program.training && comm.rank() == 0 && figures.steps > 0)
      printf("mean loss of %lld batches: %.6f\n", (long long)figures.steps, evaluated / double(figures.steps));
    writeResults();
  }

private:
  /// What can be said before anything is read.
  void checkRequest() {
    if (program.mesh.ranks() != comm.size())
      fail(PCRT_USAGE, "the program's mesh " + describeMesh(program.mesh) + " needs " +
                           std::to_string(program.mesh.ranks()) + " ranks, but the run has " +
                           std::to_string(comm.size()) + "; use pc-run -n " + std::to_string(program.mesh.ranks()));
    if (options.data.empty())
      fail(PCRT_USAGE, "--data FILE is missing; see --help");
    if (options.eval && program.training)
      fail(PCRT_USAGE, "--eval needs a program compiled with --mode=eval");
    if (!program.training && !options.save.empty())
      fail(PCRT_USAGE, "--save needs a program compiled with --mode=train");
  }

  /// What the run reads.
  void openData() {
    onAllRanks(comm, [&] {
      tokens.emplace(options.data);
      loader.emplace(program, *tokens, comm.rank());
      data = {options.data, tokens->count(), FileIdentity::of(tokens->path())};
      if (!options.load.empty()) {
        loadFrom = whereCheckpointIs(options.load);
        before = Trajectory::read(loadFrom);
      } else {
        weights = options.init.empty() ? program.weights : options.init;
      }
    });
  }

  /// What has to be the same on all ranks: flags, and what is in the files that are read.
  std::vector<SharedFact> sharedFacts() {
    std::vector<SharedFact> facts;
    for (auto &flags : {trajectoryFlags(options), sharedFlags(options)})
      for (const FlagValue &flag : flags)
        facts.push_back({"--" + flag.first, flag.second, ""});
    auto addFile = [&](const std::string &name, const std::string &path, const FileIdentity &file) {
      std::string bytes = std::to_string(file.bytes) + " bytes, sum " + file.sum;
      facts.push_back({name, bytes, path + " (" + bytes + ")"});
    };
    addFile("data", data.file, data.identity);
    FileIdentity checkpoint, init;
    onAllRanks(comm, [&] {
      if (before)
        checkpoint = FileIdentity::of(loadFrom + "/" + trajectoryName);
      else if (!weights.empty() && comm.size() > 1)
        init = identityOfWeights(weights);
    });
    addFile("checkpoint", options.load, checkpoint);
    addFile("weights", weights, init);
    return facts;
  }

  /// Where the run begins, and whether it may go on with these flags.
  void followTrajectory() {
    if (!before || !program.training) {
      options.lrSteps = options.lrSteps.value_or(options.steps);
      return;
    }
    for (const FlagValue &flag : before->flags)
      if (flag.first == "lr-steps" && !options.lrSteps)
        options.lrSteps = strtoll(flag.second.c_str(), nullptr, 10);
    checkSameTrajectory(*before, trajectoryAt(before->step), options);
    firstStep = before->step;
    // With another length of sequences: the first sample that holds nothing of what was read.
    firstSample = int64_t((__int128(before->samples) * before->sequence + program.sequence - 1) / program.sequence);
    if (firstStep > options.steps)
      fail(PCRT_USAGE, options.load + " is from step " + std::to_string(firstStep) + ", --steps " +
                           std::to_string(options.steps) + " is before that");
  }

  /// What a checkpoint behind `step` updates says.
  Trajectory trajectoryAt(int64_t step) const {
    Trajectory result;
    result.step = step;
    result.samples = sampleOf(step);
    result.batch = program.batch;
    result.sequence = program.sequence;
    result.optimizer = program.optimizer;
    result.plan = program.plan();
    result.program = programSum;
    result.flags = trajectoryFlags(options);
    result.data = {data};
    return result;
  }

  /// The first sample of step `step`.
  int64_t sampleOf(int64_t step) const { return firstSample + (step - firstStep) * program.batch; }

  /// Every file is opened before the first step, so that nothing is found missing after hours.
  void openFiles() {
    if (!options.save.empty())
      saver.emplace(options.save, comm);
    onAllRanks(comm, [&] {
      if (comm.rank() == 0) {
        metrics.emplace(options.metrics, options.steps);
        for (const std::string &path : {options.summary, options.trace})
          checkWritable(path);
      }
    });
    onAllRanks(comm, [&] {
      context.emplace(program, comm, pool);
      if (program.abi.target == PCRT_CUDA)
        device = openCudaDevice(program, comm);
      arena.device = context->device = device.get();
    });
    outputs.emplace(program, comm, options.dumpGrads, options.dumpLogits);
    context->observer = &*outputs;
  }

  static void checkWritable(const std::string &path) {
    if (path.empty())
      return;
    FILE *file = fopen(path.c_str(), "we");
    if (!file)
      fail(PCRT_RESOURCE, withErrno("cannot write " + path));
    fclose(file);
  }

  void fillArena() {
    if (device) {
      onAllRanks(comm, [&] { arena.base = device->allocateArena(program.abi.arena_bytes); });
      device->prepare(*context);
    } else {
      requireOk(comm, comm.allocateArena(program.abi.arena_bytes, &arena.base));
      if (program.stageAxis >= 0)
        requireOk(comm, comm.openFlows(program.flowsOf(comm.rank())));
      touchArena();
      context->gemms.warmUp(arena.base, program.abi.arena_bytes);
    }
    // On a device the host's threads have work only now; they would spin through the steps.
    std::optional<Pool> helpers;
    Pool &workers = device ? helpers.emplace(threadsOfThisRank()) : pool;
    if (before)
      loadCheckpoint(loadFrom, *before, program, arena, workers, comm);
    else if (!weights.empty())
      loadWeights(weights, program, arena, workers, comm);
    onAllRanks(comm, [&] {
      if (!before && weights.empty())
        drawParameters(program, options.seed, comm.rank(), arena, workers);
      fillConstants(program, comm.rank(), arena);
    });
  }

  /// Takes the arena's memory now: no step waits for pages, and a machine that has too little of it is found at once.
  void touchArena() {
    constexpr int64_t page = 4096;
    pool.ranges((program.abi.arena_bytes + page - 1) / page, [&](int, int64_t lo, int64_t hi) {
      for (int64_t i = lo; i < hi; ++i)
        static_cast<volatile char *>(arena.base)[i * page] = 0;
    });
  }

  /// lr, beta1, beta2, eps, weight_decay, 1 - beta1^t, 1 - beta2^t, clip.
  void writeHyper(int64_t step) {
    double t = double(step + 1);
    const double values[8] = {options.rateAt(step),
                              options.beta1,
                              options.beta2,
                              options.eps,
                              *options.weightDecay,
                              1 - std::pow(options.beta1, t),
                              1 - std::pow(options.beta2, t),
                              options.clip};
    for (size_t input = 0; input < program.inputs.size(); ++input)
      if (program.inputs[input].kind == "hyper")
        for (int i = 0; i < 8; ++i)
          reinterpret_cast<float *>(inputs[input])[i] = float(values[i]);
  }

  /// Writes what step `step` reads: into the arena, or where the device will copy it from.
  void fillInputs(int64_t step) {
    inputs.resize(program.inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i)
      inputs[i] = device ? device->input(step, int(i)) : arena.base + program.inputs[i].offset;
    loader->fill(sampleOf(step), inputs.data());
    writeHyper(step);
  }

  /// A step on a device; while it runs, the host prepares the next one. What is wrong with the next batch is said then.
  void runOnDevice(int64_t step) {
    if (step == firstStep)
      fillInputs(step);
    else if (nextFailure)
      throw *nextFailure;
    context->require(device->begin(*context, step));
    try {
      if (step + 1 < options.steps)
        fillInputs(step + 1);
    } catch (const Failure &failure) {
      nextFailure = failure;
    }
    context->require(device->finish(*context));
  }

  void runStep(int64_t step) {
    if (!options.trace.empty() && step + 1 == options.steps)
      context->profile.startTrace(int64_t(1) << 22);
    outputs->beginStep();
    int64_t start = nanoseconds();
    if (device) {
      runOnDevice(step);
    } else {
      fillInputs(step);
      context->step(arena.base, &figures.allocations);
    }
    outputs->endStep();
    double seconds = double(nanoseconds() - start) * 1e-9;
    figures.seconds += seconds;
    ++figures.steps;
    if (step == firstStep)
      outputs->finishDumps();
    if (std::string bad = whatIsNotFinite(); !bad.empty())
      endNonFinite(step, bad);
    if (metrics)
      metrics->add({step, outputs->loss(), outputs->gradNorm(), program.training ? options.rateAt(step) : 0,
                    program.batch * program.sequence, seconds});
  }

  /// "loss is not finite (nan)", or nothing.
  std::string whatIsNotFinite() const {
    auto describe = [](const char *what, double value) {
      return std::string(what) + " is not finite (" + (std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf") + ")";
    };
    if (!std::isfinite(outputs->loss()))
      return describe("loss", outputs->loss());
    return outputs->gradNorm() && !std::isfinite(*outputs->gradNorm()) ? describe("gradient norm", *outputs->gradNorm())
                                                                       : "";
  }

  /// The loss and the norm are the same on all ranks, so all come here together. A step whose norm is not finite has
  /// updated nothing.
  [[noreturn]] void endNonFinite(int64_t step, const std::string &what) {
    std::string message = "step " + std::to_string(step) + ": the " + what + "; a smaller --lr or --clip may help";
    if (saver && outputs->gradNorm()) {
      saver->write(program, trajectoryAt(std::isfinite(*outputs->gradNorm()) ? step + 1 : step), arena);
      message += "; the state before this step is saved in " + options.save;
    }
    fail(PCRT_NON_FINITE, message);
  }

  void writeResults() {
    if (saver && (!stoppedBy() || updates > firstStep))
      saver->write(program, trajectoryAt(updates), arena);
    if (!options.trace.empty())
      onAllRanks(comm, [&] {
        context->profile.writeTrace(options.trace, comm, [&](int rank) -> const pcrt_program & {
          int stage = program.stageAxis < 0 ? 0 : int(program.mesh.coordinate(rank, program.stageAxis));
          return program.stages[stage]->abi;
        });
      });
    if (!options.summary.empty())
      onAllRanks(comm, [&] {
        Json summary = makeSummary(*context, figures);
        if (comm.rank() == 0)
          writeText(options.summary, summary.dump(1) + "\n");
      });
    requireOk(comm, comm.barrier());
  }

  static void writeText(const std::string &path, const std::string &text) {
    FILE *file = fopen(path.c_str(), "we");
    bool good = file && fwrite(text.data(), 1, text.size(), file) == text.size();
    if (file && fclose(file) != 0)
      good = false;
    if (!good)
      fail(PCRT_RESOURCE, withErrno("cannot write " + path));
  }

  const Program &program;
  Options options; ///< As given, with what their defaults are in this run.
  Comm &comm;
  Pool pool;
  std::optional<TokenFile> tokens;
  std::optional<BatchLoader> loader;
  std::optional<Metrics> metrics; ///< Rank 0.
  std::optional<pcrt_context> context;
  std::optional<Outputs> outputs;
  std::unique_ptr<Device> device; ///< Null: the CPU.
  Arena arena;
  std::vector<char *> inputs;         ///< By input of the program.
  std::optional<Failure> nextFailure; ///< Of the next step's inputs.
  std::string programSum;
  DataIdentity data;
  std::string loadFrom, weights;    ///< What the parameters are read from; both empty: they are drawn.
  std::optional<Trajectory> before; ///< Of the checkpoint that the run goes on from.
  std::optional<CheckpointWriter> saver;
  int64_t firstStep = 0, firstSample = 0;
  int64_t updates = 0; ///< That were made, those of the checkpoint included.
  RunFigures figures;
};

} // namespace

void pcrt::runProgram(const Program &program, const Options &options, Comm &comm) { Run(program, options, comm).run(); }

std::string pcrt::describeProgram(const Program &program) {
  auto line = [](const char *key, const std::string &value) {
    return std::string(key) + std::string(14 - strlen(key), ' ') + value + "\n";
  };
  int64_t elements = 0, arena = 0, kernels = 0, products = 0, moves = 0;
  std::set<std::string> seen; // tied parameters are in several stages
  for (const Program *stage : program.stages) {
    for (const Parameter &parameter : stage->parameters)
      elements += seen.insert(parameter.name).second ? product(parameter.valid) : 0;
    arena = std::max(arena, stage->abi.arena_bytes);
    kernels += stage->abi.num_kernels;
    products += stage->abi.num_gemms;
    moves += stage->abi.num_moves;
  }
  std::string text = line("model", program.name) + line("mode", program.training ? "train" : "eval") +
                     line("mesh", describeMesh(program.mesh));
  if (!program.plan().empty())
    text += line("plan", program.plan());
  text +=
      line("batch", std::to_string(program.batch) + " sequences of " + std::to_string(program.sequence) + " tokens, " +
                        std::to_string(program.microbatches) + " microbatch" + (program.microbatches > 1 ? "es" : "")) +
      line("vocabulary", std::to_string(program.vocabulary)) + line("parameters", std::to_string(elements)) +
      line("optimizer", program.training ? program.optimizer : "none") +
      line("arena",
           std::string(program.stages.size() > 1 ? "at most " : "") + std::to_string(arena) + " bytes a rank") +
      line("target", program.abi.target == PCRT_CPU
                         ? "cpu"
                         : "cuda: " + cuda::describeImages(program.abi.images, program.abi.num_images)) +
      line("code", std::to_string(kernels) + " kernels, " + std::to_string(products) + " matrix products, " +
                       std::to_string(moves) + " moves");
  return text;
}
