//===- ChooseOffload.cpp - The cheapest values to keep outside of the device ----------------===//
// Completes and prices the plan with each choice. A choice also affects recomputation: values that leave the device
// need not be computed again.
//===-----------------------------------------------------------------------------===//
#include "ChooseOffload.h"
#include "PriceProgram.h"

#include "mlir/IR/Diagnostics.h"

using namespace mlir;
using namespace pc;

/// The kinds of values that may leave the device, in the order of their traffic.
static constexpr StringLiteral choices[] = {"",
                                            "states",
                                            "states,masters",
                                            "activations",
                                            "states,activations",
                                            "states,parameters",
                                            "states,parameters,activations"};

/// Returns the flag's value that keeps the values of `choice` in `space`.
static std::string flagOf(StringRef choice, StringRef space) {
  std::string text;
  SmallVector<StringRef> kinds;
  choice.split(kinds, ',', -1, /*KeepEmpty=*/false);
  for (StringRef kind : kinds)
    text += (text.empty() ? "" : ",") + kind.str() + ":" + space.str();
  return text;
}

/// The options with `choice` in the plan, and in the flags that a search must keep.
static CompileOptions optionsWith(StringRef choice, StringRef space, const CompileOptions &options) {
  CompileOptions one = options;
  std::string flag = flagOf(choice, space);
  one.search.pins.erase("offload");
  if (!flag.empty())
    one.search.pins.set("offload", flag);
  one.plan.tactics.clear();
  SmallVector<StringRef> kinds;
  choice.split(kinds, ',', -1, /*KeepEmpty=*/false);
  for (const Tactic &tactic : options.plan.tactics) {
    auto offload = tactic.as<OffloadTactic>();
    if (!offload || !offload->isAuto()) {
      one.plan.tactics.push_back(tactic);
      continue;
    }
    for (StringRef kind : kinds)
      one.plan.tactics.push_back(Tactic(OffloadTactic::pass).with("what", kind).with("to", space));
  }
  return one;
}

namespace {

/// Tries choices. State: the cheapest choice that fits, and the reason why the first one does not fit.
class OffloadChooser {
public:
  OffloadChooser(ModuleOp model, Phase from, const CompileOptions &options, const MachineModel &machine,
                 CompletePlanWith complete)
      : model(model), from(from), options(options), machine(machine), complete(complete) {}

  /// Tries one choice, without messages: on a CPU on disk, on a GPU on the host, or on disk if the host is too small.
  void attempt(StringRef choice) {
    hostIsFull = false;
    if (options.cuda())
      attemptIn("host", choice);
    if (!options.cuda() || hostIsFull)
      attemptIn("disk", choice);
  }

  /// Whether no later choice can be cheaper. This is the case if the last choice fits and recomputes nothing, because
  /// moving more values off the device then saves nothing. Plans that a search would find for later choices are not
  /// considered.
  bool isDone() const { return last && (last->search.isOn || chosen.empty()) && !last->plan.find<RecomputeTactic>(); }

  std::optional<CompileOptions> best, last;
  std::string chosen; ///< the flag's value
  std::string refusal;

private:
  void attemptIn(StringRef space, StringRef choice) {
    CompileOptions one = optionsWith(choice, space, options);
    one.search.isQuiet = true;
    std::string why;
    std::optional<double> seconds;
    {
      ScopedDiagnosticHandler quiet(model.getContext(), [&](Diagnostic &diagnostic) {
        if (diagnostic.getSeverity() == DiagnosticSeverity::Error && why.empty())
          why = diagnostic.str();
        return success();
      });
      if (complete(model, from, one) == PCRT_OK)
        seconds = secondsOf(one, why);
    }
    if (refusal.empty())
      refusal = why;
    last = seconds ? std::optional(one) : std::nullopt;
    if (seconds && (!best || *seconds < bestSeconds)) {
      best = std::move(one);
      bestSeconds = *seconds;
      chosen = flagOf(choice, space);
    }
  }

  /// Returns the seconds of a completed plan; std::nullopt if it does not fit. A search has already priced its plan,
  /// but does not look at the host.
  std::optional<double> secondsOf(const CompileOptions &one, std::string &why) {
    std::optional<double> found;
    if (one.searched)
      found = one.searched->getArray("candidates")->front().getAsObject()->getNumber("step_seconds");
    if (found && (!options.cuda() || machine.hostBytes == 0))
      return found;
    OwningOpRef<ModuleOp> copy = model.clone();
    std::optional<ProgramPrice> price =
        priceProgram(*copy, one, machine, why, [] { return true; }, {.parts = false, .memory = false}, from);
    if (!price)
      return std::nullopt;
    hostIsFull = machine.hostBytes > 0 && static_cast<double>(price->hostBytes) > machine.hostBytes;
    if (hostIsFull)
      return std::nullopt;
    if (found)
      return found;
    int64_t limit = options.memoryLimitOn(machine);
    if (limit && price->trial.bytes > limit) {
      const std::string beside =
          price->besideArena ? ", of which " + std::to_string(price->besideArena) + " are for NCCL" : "";
      why = "the plan needs " + std::to_string(price->trial.bytes) + " bytes per rank" + beside + ", but " +
            std::to_string(limit) + " are allowed";
      return std::nullopt;
    }
    return price->trial.seconds;
  }

  ModuleOp model;
  Phase from;
  const CompileOptions &options;
  const MachineModel &machine;
  CompletePlanWith complete;
  double bestSeconds = 0;
  bool hostIsFull = false; ///< the last choice needs more memory of the host than there is
};

} // namespace

pcrt_status pc::chooseOffload(ModuleOp model, Phase from, CompileOptions &options, CompletePlanWith complete) {
  auto isAuto = [](const Tactic &tactic) {
    auto offload = tactic.as<OffloadTactic>();
    return offload && offload->isAuto();
  };
  if (options.search.pins.text("offload") != "auto" && llvm::none_of(options.plan.tactics, isAuto))
    return complete(model, from, options);
  std::string error;
  std::optional<MachineModel> machine = MachineModel::find(options.machine, error);
  if (!machine || options.memoryLimitOn(*machine) <= 0) {
    model.emitError() << (machine ? "--offload=auto needs a memory limit; add --memory-limit=BYTES" : error);
    return PCRT_USAGE;
  }
  OffloadChooser chooser(model, from, options, *machine, complete);
  for (StringRef choice : choices) {
    chooser.attempt(choice);
    if (chooser.isDone())
      break;
  }
  if (!chooser.best) {
    model.emitError() << "nothing that --offload=auto keeps outside of the device makes a plan fit; without offload: "
                      << chooser.refusal;
    return PCRT_RESOURCE;
  }
  if (!options.search.isQuiet)
    model.emitRemark() << "--offload=auto: "
                       << (chooser.chosen.empty() ? "everything fits on the device"
                                                  : "the plan has --offload=" + chooser.chosen);
  chooser.best->search.isQuiet = options.search.isQuiet;
  options = std::move(*chooser.best);
  return PCRT_OK;
}
