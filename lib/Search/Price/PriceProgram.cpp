//===- PriceProgram.cpp - Prices a program under a plan by compiling it ----------------------===//
// Runs the passes of the compiler up to the planned phase, and predicts seconds and bytes from the result. Composed
// prices and whole compiles both come from here.
//===-----------------------------------------------------------------------------------------===//
#include "PriceProgram.h"
#include "ChooseRecompute.h"

#include "pc/Cost/Cost.h"
#include "pc/Cost/Simulate.h"
#include "pc/IR/Calls.h"
#include "pc/IR/Layers.h"
#include "pc/IR/Liveness.h"
#include "pc/IR/Stages.h"
#include "pc/Search/CompletePlan.h"

#include "mlir/IR/Threading.h"
#include <array>
#include <numeric>

using namespace mlir;
using namespace pc;

/// Returns the machine with moves that take no time. If `fastMemory` is true, memory traffic takes no time either.
static MachineModel without(const MachineModel &machine, bool fastMemory) {
  MachineModel fast = machine;
  fast.node = fast.network = {1e30, 0};
  fast.moveSeconds = fast.collectiveSeconds = fast.nodeHopSeconds = fast.networkHopSeconds = fast.treeHopSeconds = 0;
  fast.contendShare = 0;
  if (fastMemory) {
    fast.memoryBandwidth = 1e30;
    fast.opSeconds = 0;
  }
  return fast;
}

/// Adds a microbatch to a step. The program of a step is the same for any number of microbatches.
static void addMicrobatch(ModuleOp planned) {
  planned.walk([&](AccumulateOp accumulate) {
    for (Value input : llvm::SmallSetVector<Value, 4>(accumulate.getInputs().begin(), accumulate.getInputs().end())) {
      auto type = cast<RankedTensorType>(input.getType());
      SmallVector<int64_t> shape(type.getShape());
      ++shape[0];
      input.setType(RankedTensorType::get(shape, type.getElementType(), type.getEncoding()));
    }
  });
}

namespace {
/// Adds up the seconds of a microbatch before its layers and, in the backward pass, after them. The head is between the
/// two.
struct AheadOfLayers {
  double seconds = 0; ///< the seconds of the last microbatch

  void add(Operation *op, StepPhase phase, double length) {
    if (std::exchange(before, phase) != phase) {
      forward = phase == StepPhase::Forward ? 0 : forward;
      sinceLayer = 0;
    }
    bool isLayer = !layerOf(sourceName(op)).empty();
    if (isLayer && phase == StepPhase::Forward)
      forward += sinceLayer;
    sinceLayer = isLayer ? 0 : sinceLayer + length;
    if (phase == StepPhase::Backward)
      seconds = forward + sinceLayer;
  }

private:
  StepPhase before = StepPhase::Optimizer;
  double forward = 0, sinceLayer = 0;
};
} // namespace

/// Reads the seconds of each kind of task and chunk from the timeline. The seconds of a task are the median over
/// microbatches; those of the first and last microbatch are kept separately. Also reads the seconds after the last task
/// of each stage.
static void readPipeline(ModuleOp planned, const Prediction &prediction, const MachineModel &machine,
                         ProgramPrice &price) {
  std::map<std::pair<TaskKind, int64_t>, std::map<int64_t, double>> seconds; // by microbatch
  for (const StageTimeline &stage : prediction.timeline) {
    double ahead = 0; // a task's wait for gathers of its stage belongs to the task
    for (const StageSpan &span : stage.spans) {
      double length = span.end - span.start;
      if (span.type == StageSpan::Move && !span.isTask())
        ahead += length;
      if (span.isTask())
        seconds[{span.kind, span.chunk}][span.microbatch] += length + std::exchange(ahead, 0);
    }
  }
  for (const StageTimeline &stage : prediction.timeline) {
    double &tail = price.tailSeconds.emplace_back(0);
    price.movesBesideIdle.push_back(stage.movesBesideIdle);
    for (const StageSpan &span : llvm::reverse(stage.spans)) {
      if (span.isTask())
        break;
      tail += span.end - span.start;
    }
  }
  for (auto &[task, ofMicrobatches] : seconds) {
    SmallVector<double> all = llvm::to_vector(llvm::make_second_range(ofMicrobatches));
    ProgramPrice::TaskSeconds &one = price.taskSeconds[task];
    one.first = all.front();
    one.last = all.back();
    llvm::sort(all);
    one.middle = all[all.size() / 2];
  }
  StringAttr axis = stageAxisOf(planned);
  // Messages arrive in the task that reads them. Moves after all tasks, such as the sum of a parameter that two stages
  // have, are not messages.
  TaskKind kind = TaskKind::Optimizer;
  planned.walk([&](Operation *op) {
    if (auto task = dyn_cast<TaskOp>(op))
      kind = task.getKind();
    auto receive = dyn_cast<ReceiveOp>(op);
    if (!receive || kind == TaskKind::Optimizer)
      return;
    auto bytes = static_cast<double>(byteSize(receive.getValue().getType()));
    double &most = kind == TaskKind::Forward ? price.hopSeconds : price.hopBackSeconds;
    most = std::max(most, messageSeconds(bytes, NodeSpread::between(meshOf(receive), axis, 0, 1, machine), machine));
  });
}

/// Counts the ops of tasks, as if the tasks were written out, and the other ops.
static void countOps(ModuleOp staged, ProgramPrice &price) {
  auto opsIn = [](Block &block) {
    double ops = 0;
    block.walk([&](Operation *) { ops += 1; });
    return ops;
  };
  TaskFunctions functions;
  for (ModuleOp program : programsOf(staged)) {
    double &ofTasks = price.taskOps.emplace_back(0), &others = price.otherOps.emplace_back(0);
    bool isTask = false;
    for (func::FuncOp step : stepsOf(program))
      step.walk([&](Operation *op) {
        double ops = 1;
        if (auto call = dyn_cast<CallOp>(op)) {
          price.callsTasks = true;
          ops = opsIn(*functions.of(call).body);
        }
        if (auto task = dyn_cast<TaskOp>(op))
          isTask = task.getKind() != TaskKind::Optimizer;
        (isTask ? ofTasks : others) += ops;
      });
  }
}

static FailureOr<Prediction> predict(ModuleOp planned, const MachineModel &machine, StepListener listener = {}) {
  return predictStep(planned, machine, OpSeconds(), listener, /*withBytes=*/false);
}

/// Compiles a program of phase `from` with the options `one` to phase `to`, and counts the ops of tasks.
static bool compileTo(Phase to, ModuleOp model, Phase from, CompileOptions &one, ProgramPrice &price,
                      llvm::function_ref<bool()> goesOn) {
  one.search = AutoOptions();
  one.verify = Verify::None;
  one.signs = false;
  one.timing = nullptr;
  if (from == Phase::Model && chooseRecompute(model, one))
    return false;
  for (const PhaseInfo &info : phases()) {
    if (info.phase <= from)
      continue;
    if (!goesOn() || runPhase(model, info.phase, one))
      return false;
    if (info.phase == Phase::Staged && one.plan.pipeline())
      countOps(model, price);
    if (info.phase == to)
      break;
  }
  return true;
}

/// Keeps the first error.
static auto quietly(std::string &refusal) {
  return [&refusal](Diagnostic &diagnostic) {
    if (refusal.empty() && diagnostic.getSeverity() == DiagnosticSeverity::Error)
      refusal = diagnostic.str();
    return success();
  };
}

/// Predicts the seconds of a step on a machine and, for a pipeline, of its tasks.
static FailureOr<Prediction> readSeconds(ModuleOp planned, const Plan &plan, const MachineModel &machine,
                                         ProgramPrice &price, StepListener listener = {}) {
  FailureOr<Prediction> whole = predict(planned, machine, listener);
  if (failed(whole))
    return failure();
  price.programSeconds = whole->programSeconds;
  price.trial.isLegal = true;
  price.trial.seconds = whole->stepSeconds;
  if (plan.pipeline())
    readPipeline(planned, *whole, machine, price);
  return whole;
}

/// Computes the parts of `trial`. The parts are the seconds of exposed moves, the seconds of the step if moves and
/// memory took no time, and the part of these seconds in which a stage waits for others on average.
static void readParts(ModuleOp planned, const MachineModel &machine, PlanTrial &trial) {
  std::array<FailureOr<Prediction>, 2> predictions;
  mlir::parallelFor(planned.getContext(), 0, predictions.size(), [&](size_t fastMemory) {
    predictions[fastMemory] = predict(planned, without(machine, fastMemory != 0));
  });
  auto &[unmoved, products] = predictions;
  if (succeeded(unmoved))
    trial.moves = trial.seconds - unmoved->stepSeconds;
  if (failed(products))
    return;
  trial.products = products->stepSeconds;
  for (const StageTimeline &stage : products->timeline)
    trial.waits += (products->programSeconds - std::accumulate(stage.work.begin(), stage.work.end(), 0.0)) /
                   static_cast<double>(products->timeline.size());
}

/// On CUDA devices, memory outside of the arena also counts: NCCL's buffers and staging memory.
static void readBytes(ModuleOp planned, const CompileOptions &options, bool withMemory, ProgramPrice &price) {
  if (options.plan.pipeline() && withMemory)
    for (ModuleOp program : programsOf(planned))
      for (ArenaOp arena : program.getOps<ArenaOp>())
        price.memory.push_back(TaskMemory::of(stepsOf(program)[0].getBody().front(), arena.getBytes()));
  if (options.cuda()) {
    llvm::json::Object beside = besideArena(planned);
    for (StringRef key : {"staging_bytes", "nccl_bytes_estimated"})
      price.besideArena += beside.getInteger(key).value_or(0);
  }
  price.trial.bytes = largestArena(planned) + price.besideArena;
  price.hostBytes = largestArena(planned, Space::Host);
}

/// Compiles to the planned phase and predicts a step. Without stages, the same program with one more microbatch gives
/// the seconds of a microbatch.
std::optional<ProgramPrice> pc::priceProgram(ModuleOp model, const CompileOptions &options, const MachineModel &machine,
                                             std::string &refusal, llvm::function_ref<bool()> goesOn,
                                             AskedOfPrice asked, Phase from) {
  ScopedDiagnosticHandler quiet(model.getContext(), quietly(refusal));
  CompileOptions one = options;
  ProgramPrice price;
  if (!compileTo(Phase::Planned, model, from, one, price, goesOn))
    return std::nullopt;
  double forward = 0, passes = 0;
  AheadOfLayers ahead;
  auto addPass = [&](Operation *op, StepPhase phase, double start, double end) {
    if (isa<StartOp>(op))
      return;
    if (phase == StepPhase::Optimizer) {
      price.optimizerSeconds += isa<MoveOpInterface>(op) ? 0 : end - start;
      return;
    }
    ahead.add(op, phase, end - start);
    passes += end - start;
    forward += phase == StepPhase::Forward ? end - start : 0;
  };
  FailureOr<Prediction> whole =
      readSeconds(model, one.plan, machine, price, one.plan.pipeline() ? StepListener() : StepListener(addPass));
  if (failed(whole))
    return std::nullopt;
  readBytes(model, options, asked.memory, price);
  if (asked.parts)
    readParts(model, machine, price.trial);
  if (one.plan.pipeline())
    return price;
  price.aheadSeconds = ahead.seconds;
  price.activationBytes = static_cast<double>(mostActivationBytes(model));
  price.arena = arenaAroundTables(model);
  double fewer = whole->programSeconds;
  // The results of the first microbatch become the sum, and the second is the first one that is added to it. This
  // difference is not part of the seconds of each microbatch.
  for (int more = one.plan.microbatches == 1 ? 2 : 1; more > 0; --more) {
    addMicrobatch(model);
    FailureOr<Prediction> with = predict(model, machine);
    if (failed(with))
      break;
    price.microbatchSeconds = with->programSeconds - std::exchange(fewer, with->programSeconds);
  }
  passes =
      std::max(passes, price.microbatchSeconds * static_cast<double>(one.plan.microbatches)); // with waits for moves
  price.forwardShare = passes > 0 ? forward / passes : 0;
  return price;
}

bool pc::placeProgram(ModuleOp model, const CompileOptions &options) {
  std::string refusal;
  ScopedDiagnosticHandler quiet(model.getContext(), quietly(refusal));
  CompileOptions one = options;
  ProgramPrice price;
  return compileTo(Phase::Placed, model, Phase::Model, one, price, [] { return true; });
}

/// Bytes do not depend on the machine, so they are read once, and only the simulation is repeated.
std::vector<ProgramPrice> pc::priceProgramOn(ArrayRef<MachineModel> machines, ModuleOp model,
                                             const CompileOptions &options) {
  std::string refusal;
  ScopedDiagnosticHandler quiet(model.getContext(), quietly(refusal));
  CompileOptions one = options;
  ProgramPrice price;
  if (!compileTo(Phase::Planned, model, Phase::Model, one, price, [] { return true; }))
    return {};
  readBytes(model, options, /*withMemory=*/true, price);
  std::vector<ProgramPrice> all;
  for (const MachineModel &machine : machines)
    if (ProgramPrice &onIt = all.emplace_back(price); failed(readSeconds(model, one.plan, machine, onIt)))
      return {};
  return all;
}

/// Compiles the model to a step on one device. Uses the user's flags of precision, since they decide the bytes.
pcrt_status pc::readWork(ModuleOp model, const CompileOptions &options, StepWork &work) {
  OwningOpRef<ModuleOp> step(model.clone());
  CompileOptions alone = options;
  alone.plan = Plan();
  std::string why;
  pcrt_status status = PCRT_OK;
  StrategyFlags precision;
  for (const TacticFlag &flag : Tactic(MixedPrecisionTactic::pass).info()->flags)
    if (options.search.pins.given(flag.name))
      precision.set(flag.name, options.search.pins.text(flag.name));
  std::optional<Plan> plan = planFromFlags(precision, why, status);
  if (!plan) {
    model.emitError() << why;
    return status;
  }
  alone.plan = std::move(*plan);
  alone.verify = Verify::None;
  alone.timing = nullptr;
  if (pcrt_status failed = runPhase(*step, Phase::Step, alone))
    return failed;
  work = StepWork::of(*step);
  if (!options.multipliesFloat8())
    work.codeFlops = 0;
  return PCRT_OK;
}
