//===- Run.cpp - One run of a compiled program ----------------------------===//
// Sets a rank up, runs its steps and writes the results. Before the first step the ranks compare program, flags and
// files, choose the checkpoint, and open every file, so that a missing file is not noticed only after hours.
//===----------------------------------------------------------------------===//
#include "run/Run.h"
#include "base/Failure.h"
#include "checkpoint/AdapterConfig.h"
#include "checkpoint/Checkpoint.h"
#include "checkpoint/CheckpointSeries.h"
#include "checkpoint/KeptMemory.h"
#include "comm/Collective.h"
#include "cpu/CpuDevice.h"
#include "cuda/CudaDevice.h"
#include "data/Init.h"
#include "data/StepInputs.h"
#include "device/Context.h"
#include "metrics/Metrics.h"
#include "metrics/Outputs.h"
#include "metrics/Stragglers.h"
#include "metrics/Summary.h"
#include "replicas/Members.h"
#include "replicas/Replicas.h"
#include "replicas/Rounds.h"
#include "run/Info.h"
#include "run/OutputChecks.h"
#include "run/Request.h"
#include "run/Results.h"
#include "run/SameRun.h"
#include "run/Stop.h"
#include "run/Validation.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>

using namespace pcrt;

namespace {

/// The state of a run on one rank, created in the order of the members. Ranks agree before each decision, so all end
/// with the same Failure.
class Run {
public:
  Run(const Program &program, const Options &options, Comm &comm) : program(program), options(options), comm(comm) {
    this->options.weightDecay = options.weightDecay.value_or(program.optimizer == "sgd" ? 0 : 1e-2);
  }

  /// Abandons the device of a run that failed; returns whether the device may continue.
  bool abandon() { return device && device->abandon(); }

  std::optional<Failure> run() {
    programSum = sumOfProgram();
    std::string certificate = certificateSum(), what = certificate.empty() ? programSum : certificate;
    requireSame(comm, {{"program", what,
                        program.name + ", " + describeMesh(program.mesh) +
                            (certificate.empty() ? ", sum " : ", certificate ") + what},
                       {"code", programSum, "sum " + programSum}});
    checkRequest(program, options, comm.size());
    requireSame(comm, sharedFlagFacts(options));
    chooseCheckpoint();
    openData();
    requireSame(comm, sharedFiles());
    followTrajectory();
    followMemory();
    openFiles();
    fillArena();
    if (!options.meet.empty()) {
      members.emplace(options, program, programSum, *device, comm);
      follow(members->join(firstStep, sampleOf(firstStep)));
      firstStep = sampleStep;
    }
    outputs->route(options.routing, options.dumpRouting, firstStep, options.steps);
    if (firstStep >= options.steps && (!options.dumpGrads.empty() || !options.dumpLogits.empty()))
      fail(PCRT_USAGE, "no step runs before --steps " + std::to_string(options.steps) +
                           ", so --dump-grads and --dump-logits have nothing to write; raise --steps");
    if (before && program.training && firstStep >= options.steps && comm.rank() == 0)
      printf("%s is from step %lld, the last of --steps, so there is nothing left to train\n", loadFrom.c_str(),
             (long long)firstStep);
    if (metrics)
      metrics->begin(firstStep);
    if (program.training && comm.rank() == 0)
      warnOfEndedCurve(options, firstStep, before.has_value());
    stragglers.emplace(program, comm);
    LossOfTargets loss;
    StopCheck stop(comm);
    if (series)
      series->begin(firstStep);
    context->beforeUpdate = [this] {
      Comm::Busy busy(comm);
      if (series)
        series->waitForBlocks();
      if (options.snapshot)
        memory->copyBeforeUpdate(*device);
    };
    keep(firstStep);
    for (updates = firstStep;; ++updates) {
      if (validation && validation->isTurn(updates))
        evaluate(stop);
      checkCopies();
      if (updates == options.steps || endsBefore(updates, stop))
        break;
      runStep(updates);
      loss.add(outputs->loss(), counted[0]);
    }
    Comm::Busy busy(comm);
    outputs->finish();
    if (members)
      members->leave();
    if (metrics)
      metrics->finish();
    if (evaluation && evaluation->samples()) {
      double mean = loss.mean(*samples, evaluation->samples());
      if (comm.rank() == 0)
        printf("mean loss of %lld targets of %lld samples: %.6f\n", (long long)loss.targets(),
               (long long)evaluation->samples(), mean);
    }
    writeResults();
    return outputs->lostDump();
  }

private:
  /// Finds the checkpoint that the run continues, if there is one.
  void chooseCheckpoint() {
    Comm::Busy busy(comm);
    if (!options.checkpoint.empty())
      loadFrom = series.emplace(options, program, comm).newestWhole();
    if (loadFrom.empty() && !options.load.empty())
      loadFrom = checkpointAt(options.load, comm);
    else if (!loadFrom.empty() && comm.rank() == 0)
      printf("continuing from %s\n", loadFrom.c_str());
  }

  /// Opens the files that the run reads.
  void openData() {
    onAllRanks(comm, [&] {
      samples = openSamples(options, program, program.training);
      inputs.emplace(program, options, *samples, comm.rank());
      if (!program.training)
        options.steps = evaluation.emplace(program, *samples, options.stepsGiven).count();
      if (options.evalEvery)
        validation.emplace(options, program, comm.rank());
      for (const SampleData::File &file : samples->filesRead())
        data.push_back({file.spec, file.count, FileIdentity::of(file.path), file.weight});
      if (!options.routing.empty())
        data.push_back({"routing " + options.routing, 0, FileIdentity::of(options.routing)});
      if (!loadFrom.empty()) {
        before = Trajectory::read(loadFrom);
      }
      if (loadFrom.empty() || program.hasAdapter()) { // checkpoints of adapters do not contain the base
        weights = options.init.empty() ? program.weights : options.init;
        std::error_code error;
        if (options.init.empty() && !weights.empty() && !std::filesystem::exists(weights, error))
          fail(PCRT_BAD_DATA, weights + ", the source of the weights when this program was compiled, does not exist; "
                                        "give the new place of the weights with --init DIR|FILE");
      }
    });
  }

  /// The files whose contents must be the same on all ranks.
  std::vector<SharedFact> sharedFiles() {
    std::vector<SharedFact> facts;
    auto addFile = [&](const std::string &name, const std::string &path, const FileIdentity &file) {
      std::string bytes = std::to_string(file.bytes) + " bytes, checksum " + file.sum;
      facts.push_back({name, bytes, path + " (" + bytes + ")"});
    };
    addFile("data", options.data, data.size() == 1 ? data[0].identity : identityOf(data));
    FileIdentity checkpoint, init, adapter;
    onAllRanks(comm, [&] {
      if (before)
        checkpoint = FileIdentity::of(loadFrom + "/" + trajectoryName);
      else if (!options.adapter.empty() && comm.size() > 1)
        adapter = identityOfWeights(options.adapter);
      if (!weights.empty() && comm.size() > 1)
        init = identityOfWeights(weights);
    });
    addFile("checkpoint", loadFrom, checkpoint);
    addFile("weights", weights, init);
    addFile("adapter", options.adapter, adapter);
    return facts;
  }

  /// Sets the first step; checks that the run may continue the checkpoint with these flags.
  void followTrajectory() {
    norms.emplace(options.skipSpikes, NormLimit::History());
    if (!before || !program.training) {
      options.lrSteps = options.lrSteps.value_or(options.steps);
      return;
    }
    for (const FlagValue &flag : before->flags)
      if (flag.first == "lr-steps" && !options.lrSteps)
        options.lrSteps = strtoll(flag.second.c_str(), nullptr, 10);
    checkSameTrajectory(*before, trajectoryAt(before->step), options);
    firstStep = sampleStep = before->step;
    norms.emplace(options.skipSpikes, before->norms);
    // The sequence length may have changed: the first sample all of whose tokens are new.
    firstSample = int64_t((__int128(before->samples) * before->sequence + program.sequence - 1) / program.sequence);
    if (firstStep > options.steps)
      fail(PCRT_USAGE, loadFrom + " is from step " + std::to_string(firstStep) + ", --steps " +
                           std::to_string(options.steps) + " is before that; raise --steps");
  }

  /// Continues the state that earlier processes of all ranks have left in memory, unless the checkpoint is newer.
  void followMemory() {
    memory.emplace(program, programSum, comm, options.snapshot);
    int64_t newest = memory->newest();
    fromMemory = newest >= 0 && newest >= firstStep;
    if (!fromMemory)
      return;
    firstSample = sampleOf(newest);
    firstStep = sampleStep = newest;
    norms.emplace(options.skipSpikes, memory->history());
    if (comm.rank() == 0)
      printf("continuing from step %lld, which is still in memory\n", (long long)firstStep);
  }

  /// Notes that the arena holds the state after `steps` steps, from which a process that replaces this one can
  /// continue.
  void keep(int64_t steps) { memory->note(steps, norms->history()); }

  /// The trajectory.json of a checkpoint after `step` updates.
  Trajectory trajectoryAt(int64_t step) const {
    Trajectory result;
    result.step = step;
    result.samples = sampleOf(step);
    result.batch = program.batch;
    result.sequence = program.sequence;
    result.optimizer = program.optimizer;
    result.plan = program.plan();
    result.program = programSum;
    result.replicas = program.rounds.replicas;
    result.rounds = describeRounds(program);
    result.groups = program.groups();
    result.baseFrom = base.empty() ? "" : directoryOfWeights(weights);
    result.base = base;
    result.flags = trajectoryFlags(options);
    result.data = data;
    result.norms = norms->history();
    if (before)
      result.skipped = before->skipped;
    result.ended = ended;
    return result;
  }

  /// The first sample of step `step`.
  int64_t sampleOf(int64_t step) const { return firstSample + (step - sampleStep) * program.batch; }

  /// The samples in the batch of step `step`.
  Samples samplesOf(int64_t step) const {
    return evaluation ? evaluation->at(step) : Samples{sampleOf(step), program.batch};
  }

  /// Sets this member's share of the round that begins.
  void follow(const Members::Share &next) {
    share = next;
    sampleStep = share.round * program.rounds.every;
    firstSample = share.firstSample;
    evaluated = true;
  }

  bool roundEndsAfter(int64_t steps) {
    return members ? steps - sampleStep >= share.steps || members->isAwaited() : program.rounds.endsAfter(steps);
  }

  /// Opens every output and the device.
  void openFiles() {
    Comm::Busy busy(comm);
    onAllRanks(comm, [&] {
      checkOutputs(options, *samples, {loadFrom, before ? "" : options.adapter, weights});
      if (comm.rank() == 0 && !fromMemory) // from memory, the same run has checked it already
        checkReplaces(options, before ? &*before : nullptr);
      if (comm.rank() == 0 && (!options.save.empty() || series))
        tokenizer = readTokenizerFiles(before ? loadFrom : directoryOfWeights(weights));
    });
    if (!options.save.empty())
      saver.emplace(options.save, tokenizer, comm).requireRoomFor(program);
    onAllRanks(comm, [&] {
      if (comm.rank() == 0) {
        metrics.emplace(options.metrics, options.tensorboard, options.steps, StepWork::of(program, comm.size()));
        for (const std::string &path : {options.summary, options.trace})
          if (OutputFile file; !path.empty() && !file.open(path))
            fail(PCRT_RESOURCE, withErrno("cannot write " + path));
      }
    });
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
    outputs.emplace(program, comm, options.dumpGrads, options.dumpLogits);
    context->observer = &*outputs;
  }

  void fillArena() {
    context->keepsArena = fromMemory;
    context->afterArena = memory->copyBytes();
    context->scratch = options.scratch;
    if (!fromMemory)
      memory->forget();
    device->prepare(*context);
    if (series)
      series->prepare(program, *device);
    // If steps do not need the host's threads, these have work only during set-up: a pool that lived longer would spin
    // during the steps.
    std::optional<Pool> helpers;
    Pool &workers = device->threads() ? *device->threads() : helpers.emplace(threadsOfThisRank());
    if (fromMemory)
      memory->restore(*device, workers);
    else if (before)
      loadBefore(workers);
    else if (!options.adapter.empty())
      loadAdapter(options.adapter, program, *device, workers, comm);
    if (!weights.empty() && (program.hasAdapter() || !fromMemory)) { // the sums of a base go to checkpoints
      TensorSums sums = loadWeights(weights, program, *device, workers, comm);
      for (auto &[name, sum] : sums)
        if (program.hasAdapter())
          base[name] = sum.text();
    }
    onAllRanks(comm, [&] {
      if (program.hasAdapter() && before)
        checkSameBase(*before, base, loadFrom, weights);
      else if (std::error_code error; std::filesystem::exists(options.adapter + "/" + trajectoryName, error))
        checkSameBase(Trajectory::read(options.adapter), base, options.adapter, weights);
      if (!fromMemory && weights.empty() && (program.hasAdapter() || !before))
        drawParameters(program, options.seed, comm.rank(), *device, workers);
      if (!fromMemory && program.hasAdapter() && !before && options.adapter.empty())
        drawParameters(program, options.seed, comm.rank(), *device, workers, /*adapter=*/true);
      if (!fromMemory && !before && program.rounds.any())
        shareParameters(program, *device, comm.rank());
      fillConstants(program, comm.rank(), *device);
    });
  }

  /// Loads the checkpoint or, with --checkpoint, an older one if it is damaged.
  void loadBefore(Pool &workers) {
    for (bool loaded = false; !loaded;) {
      onAllRanks(comm, [&] { checkModel(program, *before, loadFrom); });
      try {
        loadCheckpoint(loadFrom, *before, program, *device, workers, comm);
        loaded = true;
      } catch (const Failure &failure) {
        if (!series || failure.status != PCRT_BAD_DATA)
          throw;
        if (comm.rank() == 0)
          fprintf(stderr, "pc: warning: %s; trying an older checkpoint\n", failure.message.c_str());
        onAllRanks(comm, [&] { series->setAside(loadFrom); });
        loadFrom = series->newestWhole();
        if (loadFrom.empty())
          throw;
        onAllRanks(comm, [&] { before = Trajectory::read(loadFrom); });
        followTrajectory();
      }
    }
  }

  /// Runs a step. While a device runs it, the host prepares the next step's inputs; an error in those is thrown at
  /// their own step.
  void callStep(int64_t step) {
    if (step == firstStep || evaluated)
      inputs->fill(*device, step, samplesOf(step));
    else if (nextFailure)
      throw *nextFailure;
    evaluated = false;
    counted = inputs->counted(); // must be saved before the counts of the next step replace them
    if (program.training && comm.rank() == 0)
      inputs->warnOfNoTargets(step, samplesOf(step));
    inputs->writeHyper(step, norms->limit()); // the limit depends on the norm of the step before
    context->require(device->begin(*context, step));
    try {
      if (step + 1 < options.steps)
        inputs->fill(*device, step + 1, samplesOf(step + 1));
    } catch (const Failure &failure) {
      nextFailure = failure;
    }
    context->require(device->finish(*context));
  }

  /// Computes and reports the loss of the validation samples.
  void evaluate(StopCheck &stop) {
    evaluated = true;
    std::optional<Validation::Figures> figures = validation->evaluate(*context, *outputs, updates, stop);
    Comm::Busy busy(comm);
    if (metrics && figures)
      metrics->addValidation(updates, figures->loss, figures->samples, figures->seconds);
  }

  /// Checks the replicas if it is time. Call it before a save.
  void checkCopies() {
    if (options.checkReplicas && updates % options.checkReplicas == 0)
      checkReplicas(program, *device, comm, updates);
  }

  /// Saves before step `step` if that is due. Returns whether a signal ends the run there.
  bool endsBefore(int64_t step, StopCheck &stop) {
    if (!saver && !series)
      return false;
    if (series && series->failure()) {
      Comm::Busy busy(comm);
      if (saver) // its directory may be on another disk
        saver->write(program, trajectoryAt(step), *device);
      throw *series->failure();
    }
    StopCheck::Answer answer = stop.ask(step, series && series->isTime(), series && series->isWritten());
    if (series && answer.written) {
      Comm::Busy busy(comm);
      series->complete();
    }
    if (series && !answer.stop && (answer.save || series->isTurn(step))) {
      Comm::Busy busy(comm);
      if (series->savesBesideSteps())
        series->start(program, trajectoryAt(step), tokenizer, *device);
      else
        series->write(program, trajectoryAt(step), tokenizer, *device, /*last=*/false);
    }
    return answer.stop;
  }

  void runStep(int64_t step) {
    if (!options.trace.empty() && step + 1 == options.steps)
      context->profile.startTrace(int64_t(1) << 22);
    outputs->beginStep(step);
    memory->beginStep(*device);
    int64_t start = nanoseconds(), movesBefore = context->profile.nanosecondsInMoves();
    callStep(step);
    memory->endStep();
    outputs->endStep(counted);
    double seconds = double(nanoseconds() - start) * 1e-9;
    double inMoves = double(context->profile.nanosecondsInMoves() - movesBefore) * 1e-9;
    ++figures.steps;
    if (step == firstStep)
      outputs->finishDumps();
    if (series) {
      Comm::Busy busy(comm);
      series->afterStep();
    }
    bool skipped = checkNumbers(step);
    bool roundEnds = roundEndsAfter(step + 1);
    if (roundEnds) {
      if (members)
        members->meet(step + 1 - sampleStep);
      start = nanoseconds(), movesBefore = context->profile.nanosecondsInMoves();
      endRound(*context);
      seconds += double(nanoseconds() - start) * 1e-9;
      inMoves += double(context->profile.nanosecondsInMoves() - movesBefore) * 1e-9;
    }
    figures.seconds += seconds;
    stragglers->add(seconds - inMoves);
    if (metrics) {
      Comm::Busy busy(comm);
      metrics->add({step, hasTargets() ? std::optional(outputs->loss()) : std::nullopt, outputs->gradNorm(),
                    program.training ? options.rateAt(step) : 0, samplesOf(step).count * program.sequence, seconds,
                    inMoves, skipped});
    }
    if (roundEnds && members) // a round may end before its last step
      updates = (share.round + 1) * program.rounds.every - 1;
    keep(updates + 1); // a run that continues from here reports nothing about this step
    if (roundEnds && members && updates + 1 < options.steps)
      follow(members->begin());
  }

  /// Returns whether the step was skipped. The run ends if too many steps in a row were, or if the loss is not finite
  /// although the step was not skipped. Loss and norm are the same on all ranks, so all make the same decision.
  bool checkNumbers(int64_t step) {
    if (!hasTargets()) {
      figures.skipped += program.training;
      return program.training;
    }
    double loss = outputs->loss();
    std::optional<double> norm = outputs->gradNorm();
    if (!norm || !program.training) {
      if (!std::isfinite(loss))
        fail(PCRT_NON_FINITE, atStep(step) + whyNotMade(loss, 0, 0));
      return false;
    }
    NormLimit::History history = norms->history();
    float limit = norms->limit();
    bool skipped = norms->add(float(*norm));
    if (!skipped && std::isfinite(loss))
      return false;
    std::string why = whyNotMade(loss, *norm, limit);
    if (skipped && norms->history().skipped <= options.mostSkipped()) {
      ++figures.skipped;
      if (comm.rank() == 0)
        fprintf(stderr, "pc: warning: %s%s; the step is skipped\n", atStep(step).c_str(), why.c_str());
      return true;
    }
    if (skipped) // a run that continues from here repeats this step
      norms.emplace(options.skipSpikes, history);
    ended = NonFiniteEnd{"step " + std::to_string(step) + ": " + why, sampleOf(step + 1)};
    endNonFinite(skipped ? step : step + 1, atStep(step) + why);
  }

  bool hasTargets() const {
    return std::any_of(counted.begin(), counted.end(), [](int64_t n) { return n > 0; });
  }

  static std::string atStep(int64_t step) { return "step " + std::to_string(step) + ": the "; }

  /// Saves the state, which is that after `updates` steps, and ends the run.
  [[noreturn]] void endNonFinite(int64_t updates, std::string message) {
    if (int64_t before = norms->history().skipped)
      message += ", and the " + std::to_string(before) + " steps before were skipped";
    message += "; a smaller --lr or --clip may help";
    if (program.rounds.any()) {
      message += "; replicas whose numbers were finite have already completed the step, so the state is not saved";
    } else if (saver || series) {
      save(updates);
      message += "; the state before this step is saved in " + (saver ? options.save : options.checkpoint);
    }
    fail(PCRT_NON_FINITE, message);
  }

  /// Saves at the end of the run. If one place cannot be written, the other one still is.
  void save(int64_t step) {
    Comm::Busy busy(comm);
    std::optional<Failure> failure;
    try {
      if (saver)
        saver->write(program, trajectoryAt(step), *device);
    } catch (const Failure &full) {
      if (!series || full.status != PCRT_RESOURCE)
        throw;
      failure = full;
    }
    if (series)
      series->write(program, trajectoryAt(step), tokenizer, *device, /*last=*/true);
    if (failure)
      throw *failure;
  }

  void writeResults() {
    if (!stoppedBy() || updates > firstStep)
      save(updates);
    writeTrace(*context, options.trace);
    if (!options.summary.empty())
      writeSummary(*context, figures, options.summary);
    requireOk(comm, comm.barrier());
  }

  const Program &program;
  Options options; ///< The given options, with defaults that depend on the run.
  Comm &comm;
  std::unique_ptr<SampleData> samples;
  std::optional<StepInputs> inputs;
  std::optional<Validation> validation;        ///< --eval-every
  std::optional<EvaluationBatches> evaluation; ///< Set if the program does not train.
  bool evaluated = false;                      ///< The inputs of an evaluation have replaced the next step's.
  std::vector<int64_t> counted;                ///< Targets of the step that count, by replica of local SGD.
  std::optional<Metrics> metrics;              ///< Rank 0.
  std::optional<pcrt_context> context;
  std::optional<Outputs> outputs;
  std::unique_ptr<Device> device;
  std::optional<Failure> nextFailure; ///< The failure of reading the next step's inputs.
  std::string programSum;
  std::vector<DataIdentity> data;
  std::string loadFrom, weights;           ///< The sources of the parameters; if both are empty, they are random.
  std::map<std::string, std::string> base; ///< Sums of the tensors of an adapter's base that were read from `weights`.
  std::optional<KeptMemory> memory;
  bool fromMemory = false;                ///< The run continues the state in `memory`.
  TokenizerFiles tokenizer;               ///< On rank 0, the files of the source of the parameters.
  std::optional<Trajectory> before;       ///< The trajectory of the checkpoint that the run continues.
  std::optional<CheckpointWriter> saver;  ///< --save
  std::optional<CheckpointSeries> series; ///< --checkpoint
  std::optional<NonFiniteEnd> ended;      ///< Set if the run ends because numbers are not finite.
  std::optional<NormLimit> norms;
  std::optional<Stragglers> stragglers;
  std::optional<Members> members; ///< --meet
  Members::Share share;
  int64_t firstStep = 0;
  int64_t sampleStep = 0, firstSample = 0; ///< A step and its first sample, from which later ones follow.
  int64_t updates = 0;                     ///< Updates made so far, including those before the checkpoint.
  RunFigures figures;
};

} // namespace

std::optional<Failure> pcrt::runProgram(const Program &program, const Options &options, Comm &comm) {
  auto run = std::make_unique<Run>(program, options, comm);
  try {
    return run->run();
  } catch (...) {
    if (run->abandon()) [[maybe_unused]]
      Run *kept = run.release(); // work that still runs on the device reads the run's memory
    throw;
  }
}
