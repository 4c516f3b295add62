//===- ChoosePlan.cpp - The plan that --auto means -------------------------------------------===//
// Enumerates what the rows of the tactics say can be tried, and compiles plans whole to the planned phase: what a plan
// takes is what the report will say.
//===-----------------------------------------------------------------------------===//
#include "ChoosePlan.h"
#include "ChooseRecompute.h"

#include "pc/Cost/Report.h"
#include "pc/Cost/Simulate.h"
#include "pc/IR/Diagnostics.h"
#include "pc/IR/Stages.h"
#include "pc/Search/Search.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include <csignal>
#include <set>

using namespace mlir;
using namespace pc;

namespace {

/// A plan and how it is shown.
struct Choice {
  Plan plan;
  PlanCandidate candidate;
};

/// While it lives, the first Ctrl-C is noted, where it would end the process; a second one does.
class NotedInterrupt {
public:
  NotedInterrupt() {
    seen = 0;
    struct sigaction noted{};
    noted.sa_handler = [](int) { seen = 1; };
    noted.sa_flags = SA_RESETHAND;
    sigaction(SIGINT, nullptr, &before);
    if (before.sa_handler != SIG_IGN)
      sigaction(SIGINT, &noted, nullptr);
  }
  ~NotedInterrupt() { sigaction(SIGINT, &before, nullptr); }
  NotedInterrupt(const NotedInterrupt &) = delete;
  NotedInterrupt &operator=(const NotedInterrupt &) = delete;

  bool happened() const { return seen; }

private:
  static inline volatile std::sig_atomic_t seen = 0;
  struct sigaction before{};
};

/// Axes of a mesh, some of them with sizes, and the flag that they need.
struct MeshForm {
  std::vector<std::pair<std::string, int64_t>> axes; ///< 0: to be searched
  std::string flag, form;
};

class PlanSearch {
public:
  PlanSearch(ModuleOp model, const CompileOptions &options, const MachineModel &machine)
      : model(model), options(options), search(options.search), machine(machine) {}

  pcrt_status run(Plan &plan, std::optional<llvm::json::Object> &found);

private:
  pcrt_status fail(pcrt_status status, const Twine &message) {
    model.emitError() << message;
    return status;
  }
  bool isFree(StringRef name) const {
    SmallVector<StringRef> names;
    StringRef(search.free).split(names, ',', -1, /*KeepEmpty=*/false);
    return names.empty() || llvm::is_contained(names, name);
  }

  pcrt_status readMesh();
  void addForms();
  void addPlans(const MeshForm &form);
  void addPlan(const StrategyFlags &flags);
  pcrt_status readWork();
  PlanShape shapeOf(const Plan &plan) const;
  PlanTrial tryPlan(const Plan &plan);
  int64_t limit() const;
  void tell(const SearchResult &result) const;
  llvm::json::Object toJson(const SearchResult &result) const;
  std::string line(const FoundPlan &found) const;

  ModuleOp model;
  const CompileOptions &options;
  const AutoOptions &search;
  const MachineModel &machine;
  int64_t ranks = 0, batch = 1;
  std::vector<MeshForm> forms;
  std::vector<Choice> choices;
  std::set<std::string> known; ///< texts of choices
  StepWork work;
  std::string refusal; ///< why the first plan that is not legal is not
};

pcrt_status PlanSearch::readMesh() {
  MeshForm given;
  SmallVector<StringRef> parts;
  std::string mesh = search.pins.text("mesh");
  StringRef(mesh).split(parts, ',', -1, /*KeepEmpty=*/false);
  int64_t fixed = 1;
  bool isOpen = false;
  for (StringRef part : parts) {
    auto [axis, size] = part.split('=');
    int64_t n = 0;
    if (axis.empty() || (size != "?" && (size.getAsInteger(10, n) || n < 1 || n > (1 << 20))))
      return fail(PCRT_USAGE, "bad mesh entry '" + part + "'; expected axis=size or axis=?, as in --mesh dp=2,tp=?");
    isOpen |= n == 0;
    fixed *= std::max<int64_t>(n, 1);
    given.axes.push_back({axis.str(), n});
  }
  ranks = search.ranks ? search.ranks : fixed;
  if (search.ranks < 0 || (!search.ranks && (isOpen || parts.empty())))
    return fail(PCRT_USAGE, "--auto needs the number of ranks: --ranks=N, or a --mesh without '?'");
  if (ranks % fixed != 0 || (!parts.empty() && !isOpen && ranks != fixed))
    return fail(PCRT_INFEASIBLE, "--mesh=" + mesh + " does not divide --ranks=" + Twine(ranks));
  if (parts.empty())
    addForms();
  else
    forms.push_back(std::move(given));
  return PCRT_OK;
}

/// Meshes of the axes that the tactics have by default, outermost first, and those with the axes of a grid in place of
/// one of them.
void PlanSearch::addForms() {
  SmallVector<std::string> axes;
  for (const TacticInfo &row : tactics())
    if (std::string axis = Tactic(row.pass).option("axis").str(); row.fromFlags && !axis.empty())
      if (!llvm::is_contained(axes, axis) && isFree(axis))
        axes.insert(axes.begin(), axis);
  auto add = [&](StringRef instead, StringRef grid, StringRef flag, StringRef name) {
    MeshForm form{{}, flag.str(), name.str()};
    for (const std::string &axis : axes) {
      SmallVector<StringRef> parts{axis};
      if (axis == instead) {
        parts.clear();
        grid.split(parts, ',');
      }
      for (StringRef part : parts)
        form.axes.push_back({part.str(), 0});
    }
    forms.push_back(std::move(form));
  };
  add("", "", "", "");
  for (const TacticInfo &row : tactics())
    for (const TacticForm &form : row.forms)
      if (!form.axes.empty() && isFree(row.flags.front().name) && !search.pins.given(row.flags.front().name))
        add(Tactic(row.pass).option("axis"), form.axes, row.flags.front().name, form.name);
}

void PlanSearch::addPlans(const MeshForm &form) {
  int64_t fixed = 1;
  size_t open = 0;
  for (const auto &[axis, size] : form.axes) {
    fixed *= std::max<int64_t>(size, 1);
    open += size == 0;
  }
  for (const SmallVector<int64_t> &sizes : factorizations(ranks / fixed, open)) {
    std::string mesh;
    size_t next = 0;
    bool isGrid = true; // all of its axes are there
    for (const auto &[axis, size] : form.axes) {
      int64_t n = size ? size : sizes[next++];
      isGrid &= form.flag.empty() || n > 1 || axis.size() == 2;
      if (n > 1 || size)
        mesh += (mesh.empty() ? "" : ",") + axis + "=" + std::to_string(n);
    }
    if (!isGrid)
      continue;
    std::vector<StrategyFlags> ways{search.pins};
    ways[0].set("mesh", mesh);
    if (!form.flag.empty())
      ways[0].set(form.flag, form.form);
    auto vary = [&](StringRef flag, ArrayRef<std::string> values) {
      if (ways[0].given(flag) || !isFree(flag))
        return;
      for (size_t i = 0, e = ways.size(); i < e; ++i)
        for (const std::string &value : values) {
          ways.push_back(ways[i]);
          ways.back().set(flag, value);
        }
    };
    for (const TacticInfo &row : tactics())
      for (const TacticFlag &flag : row.flags)
        vary(flag.name, flag.searched);
    std::vector<std::string> microbatches;
    for (int64_t n = 2; n <= std::min<int64_t>(batch, 1024); ++n)
      if (batch % n == 0)
        microbatches.push_back(std::to_string(n));
    vary("microbatches", microbatches);
    for (const StrategyFlags &flags : ways)
      addPlan(flags);
  }
}

/// "dp=2,tp=2 pc-zero{...} microbatches 2" without what says a layer's recomputation.
static std::string textOf(const Plan &plan, bool withNumbers, bool withRecompute) {
  std::string text = plan.mesh.empty() ? "one rank" : plan.meshText();
  for (const Tactic &tactic : plan.tactics)
    if (withRecompute || tactic.pass() != "pc-recompute")
      text += " " + tactic.text();
  if (withNumbers && plan.microbatches > 1)
    text += " microbatches " + std::to_string(plan.microbatches);
  return text;
}

PlanShape PlanSearch::shapeOf(const Plan &plan) const {
  PlanShape shape{ranks, 1, 1, plan.microbatches};
  if (const Tactic *pipeline = plan.pipeline()) {
    auto [name, chunks] = pipeline->option("schedule").split(':');
    shape.stages = plan.sizeOf(pipeline->option("axis"));
    if (chunks.getAsInteger(10, shape.chunks))
      shape.chunks = 1;
    shape.splitsWeightGradients = !llvm::is_contained({"naive", "gpipe", "1f1b", "1f1b-eager", "interleaved"}, name);
  }
  return shape;
}

void PlanSearch::addPlan(const StrategyFlags &flags) {
  std::string why;
  pcrt_status status = PCRT_OK;
  std::optional<Plan> plan = planFromFlags(flags, why, status);
  if (!plan) {
    if (refusal.empty())
      refusal = why;
    return;
  }
  // With one microbatch and no stages ZeRO-2 is ZeRO-1.
  bool isZero2 = llvm::any_of(
      plan->tactics, [](const Tactic &tactic) { return tactic.pass() == "pc-zero" && tactic.option("stage") == "2"; });
  if (isZero2 && plan->microbatches == 1 && !plan->pipeline() && !search.pins.given("zero"))
    return;
  Choice choice{std::move(*plan), {}};
  choice.candidate.text = textOf(choice.plan, true, true);
  if (!known.insert(choice.candidate.text).second)
    return;
  choice.candidate.axes = choice.plan.mesh.size();
  choice.candidate.form = textOf(choice.plan, false, false);
  choice.candidate.chain = textOf(choice.plan, true, false);
  if (const Tactic *recompute = choice.plan.find("pc-recompute"))
    choice.candidate.level = recompute->option("mode") == "full" ? 2 : 1;
  choice.candidate.bound = leastSeconds(work, shapeOf(choice.plan), machine);
  choices.push_back(std::move(choice));
}

/// Of the program on one device.
pcrt_status PlanSearch::readWork() {
  OwningOpRef<ModuleOp> step(model.clone());
  CompileOptions alone = options;
  alone.plan = Plan();
  std::string why;
  pcrt_status status = PCRT_OK;
  StrategyFlags precision;
  for (StringRef flag : {"precision", "gradient-precision", "residual-precision"})
    if (search.pins.given(flag))
      precision.set(flag, search.pins.text(flag));
  std::optional<Plan> plan = planFromFlags(precision, why, status);
  if (!plan)
    return fail(status, why);
  alone.plan = std::move(*plan);
  alone.verify = Verify::None;
  alone.timing = nullptr;
  if (pcrt_status failed = runPhase(*step, Phase::Step, alone))
    return failed;
  work = StepWork::of(*step);
  model.walk([&](InputOp input) {
    auto type = cast<RankedTensorType>(input->getResult(0).getType());
    batch = type.getRank() > 0 ? type.getDimSize(0) : 1;
  });
  return PCRT_OK;
}

PlanTrial PlanSearch::tryPlan(const Plan &plan) {
  PlanTrial trial;
  ScopedDiagnosticHandler quiet(model.getContext(), [&](Diagnostic &diagnostic) {
    if (refusal.empty() && diagnostic.getSeverity() == DiagnosticSeverity::Error)
      refusal = diagnostic.str();
    return success();
  });
  OwningOpRef<ModuleOp> module(model.clone());
  CompileOptions one = options;
  one.search = AutoOptions();
  one.plan = plan;
  one.verify = Verify::None;
  one.timing = nullptr;
  if (chooseRecompute(*module, one))
    return trial;
  for (const PhaseInfo &info : phases()) {
    if (runPhase(*module, info.phase, one))
      return trial;
    if (info.phase == Phase::Planned)
      break;
  }
  FailureOr<Prediction> whole = predictStep(*module, machine);
  if (failed(whole))
    return trial;
  trial.isLegal = true;
  trial.seconds = whole->stepSeconds;
  trial.bytes = largestArena(*module);
  if (options.cuda()) {
    llvm::json::Object beside = besideArena(*module);
    for (StringRef key : {"staging_bytes", "nccl_bytes_estimated"})
      trial.bytes += beside.getInteger(key).value_or(0);
  }
  MachineModel fast = machine; // without time for moves, then for memory
  fast.node = fast.network = {1e30, 0};
  fast.moveSeconds = fast.collectiveSeconds = fast.nodeHopSeconds = fast.networkHopSeconds = fast.treeHopSeconds = 0;
  fast.contendShare = 0;
  if (FailureOr<Prediction> unmoved = predictStep(*module, fast); succeeded(unmoved))
    trial.moves = whole->stepSeconds - unmoved->stepSeconds;
  fast.memoryBandwidth = 1e30;
  fast.opSeconds = 0;
  if (FailureOr<Prediction> products = predictStep(*module, fast); succeeded(products))
    trial.products = products->stepSeconds;
  return trial;
}

int64_t PlanSearch::limit() const {
  return options.stages.memory > 0 ? options.stages.memory : static_cast<int64_t>(machine.memoryBytes);
}

std::string PlanSearch::line(const FoundPlan &found) const {
  std::string text;
  double bytes = static_cast<double>(found.trial.bytes);
  int unit = bytes >= 1e9 ? 2 : bytes >= 1e6 ? 1 : 0;
  const char *units[] = {"KiB", "MiB", "GiB"};
  llvm::raw_string_ostream(text) << llvm::format("%.4g s  %.4g %s  ", found.trial.seconds,
                                                 bytes / (1 << (10 * (unit + 1))), units[unit])
                                 << choices[found.candidate].candidate.text;
  return text;
}

/// Which part of a step of `other` is longer by most.
static StringRef dearerBy(const PlanTrial &other, const PlanTrial &best) {
  std::pair<double, StringRef> parts[] = {
      {other.products - best.products, "products, and waits for stages"},
      {other.moves - best.moves, "moves that nothing hides"},
      {(other.seconds - other.products - other.moves) - (best.seconds - best.products - best.moves), "memory traffic"}};
  return std::max_element(std::begin(parts), std::end(parts))->second;
}

void PlanSearch::tell(const SearchResult &result) const {
  const FoundPlan &best = result.fitting.front();
  const PlanTrial &trial = best.trial;
  llvm::raw_ostream &os = errs();
  os << "searched " << choices.size() << " plans of " << ranks << " ranks on " << machine.name << ": "
     << result.compiled << " compiled, " << result.refused << " refused, " << result.tooLarge.size()
     << " too large; gap " << llvm::format("%.1f %%\n", 100 * result.gap);
  double percent = trial.seconds > 0 ? 100 / trial.seconds : 0;
  os << "chosen   " << line(best)
     << llvm::format("  products %.0f %%  exposed moves %.0f %%  memory traffic %.0f %%\n", percent * trial.products,
                     percent * trial.moves, percent * (trial.seconds - trial.products - trial.moves));
  std::set<std::string> shown{choices[best.candidate].candidate.form};
  for (const FoundPlan &other : result.fitting) {
    if (shown.size() == 6)
      break;
    if (!shown.insert(choices[other.candidate].candidate.form).second)
      continue;
    os << llvm::format("%-9d", static_cast<int>(shown.size())) << line(other)
       << llvm::format("  +%.1f %%", 100 * (other.trial.seconds / trial.seconds - 1))
       << "  dearer by: " << dearerBy(other.trial, trial) << "\n";
  }
  if (limit() > 0)
    os << "limit    " << limit() << " bytes a rank\n";
}

/// The plans that were compiled, the chosen one first, those that are too large last.
llvm::json::Object PlanSearch::toJson(const SearchResult &result) const {
  llvm::json::Array plans;
  auto add = [&](const FoundPlan &found) {
    const PlanTrial &trial = found.trial;
    llvm::json::Object plan{{"plan", choices[found.candidate].candidate.text},
                            {"step_seconds", trial.seconds},
                            {"arena_bytes", trial.bytes}};
    if (!plans.empty())
      plan["dearer_by"] = dearerBy(trial, result.fitting.front().trial);
    plans.push_back(std::move(plan));
  };
  llvm::for_each(result.fitting, add);
  llvm::for_each(result.tooLarge, add);
  return llvm::json::Object{{"plans", static_cast<int64_t>(choices.size())},
                            {"compiled", result.compiled},
                            {"refused", result.refused},
                            {"limit", limit()},
                            {"gap", result.gap},
                            {"candidates", std::move(plans)}};
}

pcrt_status PlanSearch::run(Plan &plan, std::optional<llvm::json::Object> &found) {
  if (pcrt_status status = readWork())
    return status;
  if (pcrt_status status = readMesh())
    return status;
  for (const MeshForm &form : forms)
    addPlans(form);
  auto candidates = llvm::map_to_vector(choices, [](const Choice &choice) { return choice.candidate; });
  NotedInterrupt interrupt;
  SearchResult result = searchPlans(
      candidates, limit(), search.compositions, [&] { return !interrupt.happened(); },
      [&](size_t i) { return tryPlan(choices[i].plan); });
  if (!result.fitting.empty()) {
    tell(result);
    found = toJson(result);
    plan = choices[result.fitting.front().candidate].plan;
    return PCRT_OK;
  }
  if (interrupt.happened())
    return fail(PCRT_RESOURCE, "interrupted before a plan was found, behind " + Twine(result.compiled) + " of " +
                                   Twine(choices.size()));
  std::string tried = Twine(result.compiled).str() + " of " + std::to_string(choices.size()) + " plans of " +
                      std::to_string(ranks) + " ranks were tried, with the flags that were given";
  if (result.tooLarge.empty())
    return fail(PCRT_INFEASIBLE,
                "no plan is legal: " + tried + (refusal.empty() ? "" : "; the first was refused: " + refusal));
  return fail(PCRT_RESOURCE, "no plan fits " + Twine(limit()) + " bytes a rank: " + tried +
                                 "; the least that would do is " + Twine(result.tooLarge.front().trial.bytes) +
                                 " bytes: " + choices[result.tooLarge.front().candidate].candidate.text);
}

} // namespace

pcrt_status pc::choosePlan(ModuleOp model, CompileOptions &options, const MachineModel &machine,
                           std::optional<llvm::json::Object> &found) {
  if (!options.search.isOn)
    return PCRT_OK;
  Plan plan;
  if (pcrt_status status = PlanSearch(model, options, machine).run(plan, found))
    return status;
  options.plan = std::move(plan);
  return PCRT_OK;
}
