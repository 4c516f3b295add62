//===- Pipeline.cpp - The passes of every phase, in order -------------------------------===//
// This file has the order of all passes. Each phase ends with a verifier of the programs that are legal after it.
//===-----------------------------------------------------------------------------===//
#include "pc/Codegen/Codegen.h"
#include "pc/Driver/Compile.h"
#include "pc/Driver/Flags.h"
#include "pc/Driver/Origin.h"
#include "pc/Localize/Passes.h"
#include "pc/Raise/Passes.h"
#include "pc/Shard/Passes.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Support/Timing.h"

using namespace mlir;
using namespace pc;

namespace {

/// Adds the passes of one phase to a pass manager. Input: the options with the plan. Result: the passes in order, each
/// with the exit status of a compile in which it fails.
class PhaseBuilder {
public:
  /// If `verifiers` is true, adds only the verifiers of the phase.
  PhaseBuilder(OpPassManager &program, const CompileOptions &options, PhaseFailures &failures, bool verifiers = false)
      : program(program), options(options), plan(options.plan), failures(failures), verifiers(verifiers) {}

  /// Adds the passes of `phase`. After `staged` the programs of stages are compiled independently, up to their kernels,
  /// which stages share.
  void build(Phase phase) {
    bool perStage = plan.pipeline() && phase > Phase::Staged && phase < Phase::Kernels;
    to = perStage ? &program.nest<ModuleOp>() : &program;
    switch (phase) {
    case Phase::Model:
      return;
    case Phase::Step:
      return buildStep();
    case Phase::Placed:
      return buildPlaced();
    case Phase::Staged:
      return buildStaged();
    case Phase::Local:
      return buildLocal();
    case Phase::Scheduled:
      return buildScheduled(perStage);
    case Phase::Planned:
      return buildPlanned();
    case Phase::Kernels:
      return buildKernels();
    case Phase::Exe:
      return; // linking is not a pass (Compile.cpp)
    }
  }

  std::string error; ///< the error of a tactic whose options are wrong

private:
  /// The passes from the model to the step. The order matters, as the comments say.
  void buildStep() {
    // Raising comes first, so that later passes see whole ops and not their pieces.
    add(createRaise(), PCRT_INTERNAL);
    // This runs before differentiation, so that each gradient is also one product.
    if (options.packs() && plan.packsProducts() && !options.generate)
      add(createPackProducts({.ranks = plan.vocabularyRanks()}), PCRT_INTERNAL);
    // This runs before differentiation, so that padding also has a gradient, which is zero.
    add(createPadVocabulary({.multiple = plan.vocabularyMultiple(options.cuda(), options.padVocabulary)}),
        PCRT_INFEASIBLE);
    if (options.generate) {
      GenerateStepsOptions generate = *options.generate;
      generate.groups = plan.dataRanks();
      generate.microbatches = microbatchesOf(generate.slots);
      if (std::optional<ContextParallelTactic> context = plan.find<ContextParallelTactic>())
        generate.parts = plan.sizeOf(context->axis());
      add(createGenerateSteps(generate), PCRT_INFEASIBLE);
      return finishStep();
    }
    // This runs before differentiation, so that gradients are also computed in chunks.
    if (int64_t chunks = plan.sequenceChunks(); chunks > 1)
      add(createChunkRecurrences({.chunks = chunks}), PCRT_INTERNAL);
    // Differentiation comes before placement, so the backward pass needs no special placement rules.
    DifferentiateOptions step = options.step;
    step.microbatches = plan.microbatches;
    if (!options.train)
      step.optimizer = "none";
    add(createDifferentiate(step), PCRT_INFEASIBLE);
    // This runs before casts and copies come between parameters and the ops that read them.
    if (options.train && options.states == "8bit")
      add(createQuantizeStates(), PCRT_INFEASIBLE);
    if (options.train && options.weightPrecision == "int8")
      add(createQuantizeWeights(), PCRT_INFEASIBLE);
    finishStep();
  }

  /// The number of parts into which a program that generates divides its slots. With one part per stage, no stage has
  /// to wait.
  int64_t microbatchesOf(int64_t slots) const {
    std::optional<PipelineTactic> pipeline = plan.pipeline();
    int64_t parts = plan.microbatches;
    if (pipeline && parts == 1)
      for (parts = plan.sizeOf(pipeline->axis()); slots % parts;)
        --parts;
    return parts;
  }

  /// The passes after the step is written.
  void finishStep() {
    // Some tactics split a dim that a norm needs whole. This runs before placement, so that erasing the placements
    // still gives the verified step.
    if (plan.splitsEmbed())
      add(createDecomposeNorms(), PCRT_INTERNAL);
    // Dtypes do not depend on placement, so erasing the placements gives the step in bf16.
    addTactics(Phase::Step);
    // This runs after the dtypes of logits and sums are chosen, and after the order of the sequence is checked.
    if (options.lossChunks.chunks > 1)
      add(createChunkLoss({.chunks = options.lossChunks.chunks, .ranks = plan.sequenceChunks()}), PCRT_USAGE);
    // Codes do not depend on the plan, either. This runs after the dtypes of activations are chosen, and before
    // parameters are padded.
    if (options.generate && options.weights != "full")
      add(createStoreCodes({.weights = options.weights}), PCRT_INFEASIBLE);
    // Pads parameters whose dims the axes do not divide. This runs after tactics that decide how often and in which
    // dtype parameters are read.
    if (std::optional<PadShardsOptions> padding = plan.padding())
      add(createPadShards(*padding), PCRT_INTERNAL);
    // Adds the data that a compile needs to continue from a later phase.
    if (options.signs)
      add(createSignStep(signatureOf(plan, options.kernels)), PCRT_INTERNAL);
    add(createVerifyStep(), PCRT_VERIFICATION);
  }

  /// Tactics run in the order of the plan.
  void buildPlaced() {
    int64_t owners = 1;
    for (const std::string &axis : plan.ownerAxes())
      owners *= std::max<int64_t>(plan.sizeOf(axis), 1);
    if (owners > 1)
      add(createStackUpdates({.multiple = owners}), PCRT_INTERNAL);
    add(createSetMesh({.mesh = plan.meshText()}), PCRT_INFEASIBLE);
    addTactics(Phase::Placed);
    // A chain of moves of one kind over several axes becomes one move over all of them, which costs less.
    add(createFuseMoves(), PCRT_INTERNAL);
    add(createVerifyPlaced(), PCRT_VERIFICATION);
  }

  void buildStaged() {
    if (!plan.pipeline())
      return; // there is only one stage
    addTactic(plan.pipeline()->on(options.machine, options.inlineOps, options.memoryLimit));
    add(createVerifyStaged(), PCRT_VERIFICATION);
  }

  void buildLocal() {
    add(createLocalize(), PCRT_INTERNAL);
    add(createVerifyLocal(), PCRT_VERIFICATION);
  }

  /// The passes that fuse ops and schedule moves, per stage if there are stages.
  void buildScheduled(bool perStage) {
    // Entries that tokens have not chosen are not stored if possible, and are otherwise multiplied by zeros.
    add(createStoreRows({.target = options.kernels.target, .limit = options.expertsLimit}), PCRT_INFEASIBLE);
    add(createExpandRouted(), PCRT_INTERNAL);
    // Windows for attention over a split sequence, and for products if the plan asks for them. This runs before ops
    // are fused.
    if (!addTactics(Phase::Scheduled))
      add(createWindowMoves(), PCRT_INFEASIBLE); // rings depend on the placements of keys and values
    // Products of codes are fusions of their own, with operands in orders that other fusions must not see.
    if (options.multipliesFloat8())
      add(createMultiplyCodes(), PCRT_INTERNAL);
    // Values inside fusions need no buffer, so fusion comes before memory planning.
    FuseOptions fuse = options.fuse;
    fuse.target = options.kernels.target;
    add(createFuse(fuse), PCRT_INTERNAL);
    add(createSchedule(options.schedule), PCRT_INTERNAL);
    add(createVerifyScheduled(), PCRT_VERIFICATION);
    if (!perStage)
      return;
    to = &program;
    // With one program, pc-window-moves checks the axes itself. With stages, an axis may have windows in only one
    // stage.
    add(createVerifyWindows({.axes = windowAxes()}), PCRT_INFEASIBLE);
    // Scheduling changes the positions of sends and receives, so the programs of the stages are checked again.
    add(createVerifyStaged(), PCRT_VERIFICATION);
  }

  /// The passes that give values their homes.
  void buildPlanned() {
    // Rounds of local SGD use only memory of the step.
    addTactics(Phase::Planned);
    PlanMemoryOptions arena = options.arena;
    arena.target = options.kernels.target;
    arena.attention = options.kernels.attention;
    arena.archs = options.kernels.archs;
    add(createPlanMemory(arena), PCRT_INTERNAL);
    add(createVerifyMemory(), PCRT_VERIFICATION);
    // Runs again, since values now share bytes, and starts and waits must order their accesses.
    add(createVerifyScheduled(), PCRT_VERIFICATION);
  }

  /// Kernels use the widest vectors of this machine, unless they are for a GPU.
  void buildKernels() {
    GenerateKernelsOptions kernels = options.kernels;
    if (!options.cuda()) {
      kernels.lanes = nativeLanes();
      kernels.roundsToBf16 = nativeRoundsToBf16();
    }
    add(createGenerateKernels(kernels), PCRT_INTERNAL);
    add(createVerifyKernels(), PCRT_VERIFICATION);
  }

  /// Adds a pass, and the status with which the compile ends if it fails. Verifiers are left out if the user wants
  /// none.
  void add(std::unique_ptr<Pass> pass, pcrt_status failure) {
    bool isVerifier = failure == PCRT_VERIFICATION;
    if (isVerifier ? options.verify == Verify::None : verifiers)
      return;
    failures[pass->getArgument().str()] = failure;
    to->addPass(std::move(pass));
  }

  /// A tactic is parsed as text, as pc-opt does it. If its options are wrong, that is the error of the phase.
  void addTactic(const Tactic &tactic) {
    if (verifiers)
      return;
    std::string message;
    llvm::raw_string_ostream errors(message);
    failures[tactic.pass().str()] = PCRT_INFEASIBLE;
    if (failed(parsePassPipeline(tactic.text(), *to, errors)) && error.empty())
      error = "bad tactic '" + tactic.text() + "': " + StringRef(message).rtrim().str();
  }

  /// Adds the plan's tactics of a phase; false if there are none.
  bool addTactics(Phase phase) {
    SmallVector<Tactic> tactics = plan.tacticsOf(phase);
    for (const Tactic &tactic : tactics) {
      auto dispatch = tactic.as<DispatchExpertsTactic>();
      if (!dispatch)
        addTactic(tactic.onMachine(options.machine));
      else if (!options.expertsLimit || !dispatch->isAuto()) // rounds need gathered tokens
        addTactic(dispatch->forRanks(expertRanks(), options.kernels.target));
    }
    return !tactics.empty();
  }

  /// The number of ranks that will split experts.
  int64_t expertRanks() const {
    int64_t ranks = 1;
    for (const Tactic &tactic : plan.tactics)
      if (tactic.splitsExperts())
        ranks *= std::max<int64_t>(plan.sizeOf(tactic.axis()), 1);
    return ranks;
  }

  /// The axes over which moves are split into ring steps.
  SmallVector<std::string> windowAxes() const {
    SmallVector<std::string> axes;
    for (const Tactic &tactic : plan.tactics)
      if (auto windows = tactic.as<WindowMovesTactic>())
        for (StringRef axis : windows->axes())
          axes.push_back(axis.str());
    return axes;
  }

  OpPassManager &program, *to = nullptr; ///< passes are added to `to`: the pipeline, or its nest for stages
  const CompileOptions &options;
  const Plan &plan;
  PhaseFailures &failures;
  const bool verifiers;
};

/// Sets the status that belongs to the first pass that failed.
struct FirstFailure : PassInstrumentation {
  FirstFailure(const PhaseFailures &failures, pcrt_status &status) : failures(failures), status(status) {}

  void runAfterPassFailed(Pass *pass, Operation *) override {
    if (auto it = failures.find(pass->getArgument().str()); it != failures.end() && !status)
      status = it->second;
  }

  const PhaseFailures &failures;
  pcrt_status &status;
};

} // namespace

std::string pc::buildPhase(OpPassManager &passes, Phase phase, const CompileOptions &options, PhaseFailures &failures) {
  PhaseBuilder builder(passes, options, failures);
  builder.build(phase);
  return builder.error;
}

/// Builds and runs the passes of a phase, or only its verifiers.
static pcrt_status run(ModuleOp module, Phase phase, const CompileOptions &options, bool verifiers) {
  TimingScope timing = options.timing ? options.timing->nest(nameOf(phase)) : TimingScope();
  PassManager manager = PassManager::on<ModuleOp>(module.getContext());
  manager.enableVerifier(false); // each phase ends with a verifier, and the ops are verified below
  PhaseFailures failures;
  PhaseBuilder builder(manager, options, failures, verifiers);
  builder.build(phase);
  if (!builder.error.empty()) {
    emitError(module.getLoc()) << builder.error;
    return PCRT_USAGE;
  }
  pcrt_status status = PCRT_OK;
  manager.addInstrumentation(std::make_unique<FirstFailure>(failures, status));
  // A tool with MLIR's pass manager flags also measures times.
  if (options.timing && failed(applyPassManagerCLOptions(manager)))
    return PCRT_USAGE;
  manager.enableTiming(timing);
  if (failed(manager.run(module)))
    return status ? status : PCRT_INTERNAL;
  return succeeded(verify(module)) ? PCRT_OK : PCRT_VERIFICATION;
}

pcrt_status pc::runPhase(ModuleOp module, Phase phase, const CompileOptions &options) {
  return run(module, phase, options, /*verifiers=*/false);
}

pcrt_status pc::verifyPhase(ModuleOp module, Phase phase, const CompileOptions &options) {
  return run(module, phase, options, /*verifiers=*/true);
}

/// Each phase is also a pipeline of pc-opt, whose options are the flags of pc-compile.
void pc::registerPhasePipelines() {
  for (const PhaseInfo &info : phases()) {
    if (info.phase == Phase::Model || info.phase == Phase::Exe)
      continue;
    auto build = [phase = info.phase](OpPassManager &passes, StringRef text,
                                      function_ref<LogicalResult(const Twine &)> refuse) -> LogicalResult {
      std::string error;
      llvm::raw_string_ostream errors(error);
      CompileFlags flags;
      CompileOptions options;
      PhaseFailures failures;
      if (failed(flags.parseFromString(text, errors)) || flags.resolve(nullptr, options, error))
        return refuse(error);
      error = buildPhase(passes, phase, options, failures);
      return error.empty() ? success() : refuse(error);
    };
    registerPassPipeline(("pc-phase-" + info.name).str(),
                         ("The passes of the phase " + info.name + "; options are flags of pc-compile").str(), build,
                         [](auto) {}); // whose help shows them
  }
}
