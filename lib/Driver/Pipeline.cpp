//===- Pipeline.cpp - The passes of every phase, in order -------------------------------===//
// The whole compiler on one page. Each phase ends in a verifier that lists what is legal there.
//===-----------------------------------------------------------------------------===//
#include "pc/Codegen/Codegen.h"
#include "pc/Driver/Compile.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/Twine.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace pc;

/// One pass of the pipeline, and what it means when it fails.
struct Step {
  std::string pass;
  pcrt_status failure;
};

/// What passes of a CUDA program need to know of its libraries.
static std::string cudaOptions(const CompileOptions &options) {
  std::string text = "target=cuda attention=" + options.attention;
  if (!options.archs.empty())
    text += " archs=" + llvm::join(options.archs, ",");
  return text;
}

static SmallVector<Step> passesOf(Phase phase, const CompileOptions &options) {
  const Plan &plan = options.plan;
  switch (phase) {
  case Phase::Model:
    return {};

  case Phase::Step: {
    SmallVector<Step> steps = {
        // Before differentiation, so that the padding has a gradient (zero) like everything else.
        {"pc-pad-vocabulary{multiple=" + std::to_string(plan.vocabularyMultiple(options.cuda)) + "}", PCRT_INFEASIBLE},
        // Backward needs no placement rules of its own because differentiation comes before placement.
        {"pc-differentiate{microbatches=" + std::to_string(plan.microbatches) +
             " optimizer=" + (options.train ? options.optimizer : "none") + "}",
         PCRT_INFEASIBLE},
    };
    // What a tactic splits that a composite op needs whole. Before placement, so that erasure gives this program back.
    if (plan.splitsEmbed())
      steps.push_back({"pc-decompose-norms", PCRT_INTERNAL});
    // What is stored in bf16 depends on no placement; a placed program erased is then the step in bf16.
    for (const Tactic &tactic : plan.tactics)
      if (tactic.isOfStep())
        steps.push_back({tactic.text(), PCRT_INFEASIBLE});
    // Shards of what does not divide; behind what decides how often and in which type a parameter is read.
    if (std::string padding = plan.padding(); !padding.empty())
      steps.push_back({padding, PCRT_INTERNAL});
    return steps;
  }

  case Phase::Placed: {
    SmallVector<Step> steps;
    steps.push_back({plan.mesh.empty() ? "pc-set-mesh" : "pc-set-mesh{mesh=" + plan.meshText() + "}", PCRT_INFEASIBLE});
    for (const Tactic &tactic : plan.tactics)
      if (!tactic.isOfStep() && !tactic.cutsStages() && !tactic.isOfMoves())
        steps.push_back({tactic.text(), PCRT_INFEASIBLE});
    // Chains of equal moves over several axes cost less as one.
    steps.push_back({"pc-fuse-moves", PCRT_INTERNAL});
    steps.push_back({"pc-verify-placed", PCRT_VERIFICATION});
    return steps;
  }

  case Phase::Staged: {
    if (!plan.pipeline())
      return {}; // one stage, nothing to cut
    Tactic tactic =
        plan.pipeline()->with("machine", options.machine).with("inline-ops", std::to_string(options.inlineOps));
    if (options.memoryLimit > 0)
      tactic = tactic.with("memory", std::to_string(options.memoryLimit));
    return {{tactic.text(), PCRT_INFEASIBLE}, {"pc-verify-staged", PCRT_VERIFICATION}};
  }

  case Phase::Local:
    return {{"pc-localize", PCRT_INTERNAL}, {"pc-verify-local", PCRT_VERIFICATION}};

  case Phase::Scheduled: {
    // Gathers that feed attention over a split sequence, or products as the plan says; while every op still stands
    // alone.
    Step windows{"pc-window-moves", PCRT_INTERNAL};
    for (const Tactic &tactic : plan.tactics)
      if (tactic.isOfMoves())
        windows = {tactic.text(), PCRT_INFEASIBLE};
    return {
        windows,
        // What is fused needs no buffer, so fusion comes before memory planning.
        {options.cuda ? "pc-fuse{target=cuda}" : "pc-fuse", PCRT_INTERNAL},
        {"pc-schedule{bucket-bytes=" + std::to_string(options.bucketBytes) + " prefetch=" +
             std::to_string(options.prefetch) + " prefetch-bytes=" + std::to_string(options.prefetchBytes) + "}",
         PCRT_INTERNAL},
        {"pc-verify-scheduled", PCRT_VERIFICATION},
    };
  }

  case Phase::Planned:
    return {
        {"pc-plan-memory" + (options.cuda ? "{" + cudaOptions(options) + "}" : ""), PCRT_INTERNAL},
        {"pc-verify-memory", PCRT_VERIFICATION},
        // Once more: now values that share bytes must be kept apart by starts and waits too.
        {"pc-verify-scheduled", PCRT_VERIFICATION},
    };

  case Phase::Kernels:
    if (options.cuda)
      return {{"pc-generate-kernels{" + cudaOptions(options) + (options.checkKernels ? " check-kernels}" : "}"),
               PCRT_INTERNAL}};
    return {{"pc-generate-kernels{lanes=" + std::to_string(nativeLanes()) +
                 (nativeRoundsToBf16() ? " rounds-to-bf16" : "") + "}",
             PCRT_INTERNAL}};

  case Phase::Exe:
    return {}; // code generation and linking are not passes (Compile.cpp)
  }
  return {};
}

/// Runs a pass on a program, or on the programs of all stages side by side.
static pcrt_status runPass(const Step &step, ModuleOp module, bool perStage, const CompileOptions &options) {
  PassManager manager(module.getContext());
  manager.enableVerifier(false); // tactics are verified by the phase's own verifier below
  if (options.timing)
    manager.enableTiming();
  std::string message;
  llvm::raw_string_ostream errors(message);
  OpPassManager &passes = perStage ? manager.nest<ModuleOp>() : manager;
  if (failed(parsePassPipeline(step.pass, passes, errors))) {
    emitError(module.getLoc()) << "bad tactic '" << step.pass << "': " << StringRef(message).rtrim();
    return PCRT_USAGE;
  }
  return succeeded(manager.run(module)) ? PCRT_OK : step.failure;
}

/// Every axis of windows has one in some stage; one program alone is asked by the pass itself.
static LogicalResult checkWindows(ModuleOp module, const Plan &plan) {
  for (const Tactic &tactic : plan.tactics) {
    SmallVector<StringRef> axes;
    if (tactic.isOfMoves())
      tactic.option("axes").split(axes, ',');
    for (StringRef axis : axes) {
      WalkResult found = module.walk([&](PermuteOp step) {
        bool here = llvm::any_of(step.getAxes().getAsRange<StringAttr>(), [&](StringAttr name) {
          return name == axis || name.getValue().starts_with((axis + ".").str()); // or a part of it
        });
        return here ? WalkResult::interrupt() : WalkResult::advance();
      });
      if (!found.wasInterrupted())
        return module.emitError() << "pc-window-moves: nothing to do over axis '" << axis
                                  << "' in any stage: no gather over it feeds a matrix product, and no product is "
                                     "scattered over it";
    }
  }
  return success();
}

pcrt_status pc::runPhase(ModuleOp module, Phase phase, const CompileOptions &options) {
  // Behind `staged`, every stage's program goes its way as if it were the only one, up to its kernels, which stages
  // share.
  bool staged = !module.getOps<ModuleOp>().empty();
  for (const Step &step : passesOf(phase, options))
    if (pcrt_status status = runPass(step, module, staged && phase != Phase::Kernels, options))
      return status;
  if (phase == Phase::Scheduled && staged && failed(checkWindows(module, options.plan)))
    return PCRT_INFEASIBLE;
  // What was scheduled anew must still fit together.
  if (phase == Phase::Scheduled && staged)
    if (pcrt_status status = runPass({"pc-verify-staged", PCRT_VERIFICATION}, module, false, options))
      return status;
  return succeeded(module.verify()) ? PCRT_OK : PCRT_VERIFICATION;
}
