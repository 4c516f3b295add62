//===- ChoosePlan.cpp - The plan that --auto means -------------------------------------------===//
// What the Search room opens and prices, it gets from here: plans of small models are compiled whole to the planned
// phase, those of large ones put together from programs of few layers; then the best are compiled whole. What a plan
// takes is what the report will say.
//===-----------------------------------------------------------------------------===//
#include "pc/Driver/ChoosePlan.h"
#include "ComposePlan.h"
#include "PlanBounds.h"
#include "PlanSpace.h"

#include "mlir/Parser/Parser.h"
#include "pc/Driver/Registration.h"
#include "pc/IR/Diagnostics.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include <atomic>
#include <csignal>
#include <set>
#include <thread>

using namespace mlir;
using namespace pc;

namespace {

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

/// A context of its own with the model in it, so that compiles in several threads do not meet.
class Worker {
public:
  Worker(StringRef text, const CompileOptions &options, const MachineModel &machine)
      : context(dialects(), MLIRContext::Threading::DISABLED), options(options), machine(machine) {
    ScopedDiagnosticHandler quiet(&context, [](Diagnostic &) { return success(); });
    model = parseSourceString<ModuleOp>(text, &context);
    few = FewLayers::of(*model);
    if (few)
      composer.emplace(*few, batchOf(*model), options, machine);
  }

  /// By a compile of the whole model.
  std::optional<ProgramPrice> priceWhole(const Plan &plan, std::string &refusal) {
    CompileOptions one = options;
    one.plan = plan;
    OwningOpRef<ModuleOp> module(model->clone());
    return priceProgram(*module, one, machine, refusal);
  }

  std::optional<Composer> composer;

private:
  static DialectRegistry dialects() {
    DialectRegistry registry;
    registerDialects(registry);
    return registry;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> model;
  std::optional<FewLayers> few;
  const CompileOptions &options;
  const MachineModel &machine;
};

/// Models with more layers than these are not compiled whole for every plan.
constexpr int64_t manyLayers = 12;
/// A composed plan is good enough where none can be better by more than this share: composed seconds are right to half
/// of it.
constexpr double composedError = 0.015;
/// Composed bytes may be too many by this share; the whole compile decides.
constexpr double composedBytes = 0.06;
/// Of the best composed plans, so many are compiled whole until one fits.
constexpr int finalists = 5;

class PlanSearch {
public:
  PlanSearch(ModuleOp model, const CompileOptions &options, const MachineModel &machine)
      : model(model), options(options), search(options.search), machine(machine), batch(batchOf(model)),
        space(search, batch) {}

  pcrt_status run(Plan &plan, std::optional<llvm::json::Object> &found);

private:
  pcrt_status fail(pcrt_status status, const Twine &message) {
    model.emitError() << message;
    return status;
  }
  /// A set of plans, or a plan.
  struct Node {
    StrategyFlags set;
    std::optional<Plan> plan;
    bool hasCore = false; ///< its bound is that of its core
  };
  /// A program, or two, that a thread compiles.
  struct Job {
    std::string key;
    PlanCore core;
    std::optional<Plan> plan; ///< none: the core is priced
    bool any = false;         ///< for a bound of all plans of the core, of any batch
    std::string refusal = {};
    CorePrice corePrice = {};
    ComposedPlan composed = {};
  };

  pcrt_status readWork();
  void learnRoots();
  int splitOf(const StrategyFlags &set) const;
  PlanNode nodeOf(Plan plan, double bound, bool hasCore);
  std::vector<PlanNode> roots();
  std::vector<OpenedNode> open(ArrayRef<PlanNode> nodes);
  /// What has to be compiled before a node can be opened; nothing if all is known.
  std::optional<Job> jobOf(const PlanNode &node);
  OpenedNode openNow(const PlanNode &node, std::map<std::string, Job> &jobs);
  OpenedNode openSet(const PlanNode &node);
  void runJobs(MutableArrayRef<Job *> jobs);
  void compileFinalists(SearchResult &result);
  int64_t limit() const;
  std::string known(const SearchResult &result) const;
  void tell(const SearchResult &result) const;
  llvm::json::Object toJson(const SearchResult &result) const;
  std::string line(const FoundPlan &found) const;

  ModuleOp model;
  const CompileOptions &options;
  const AutoOptions &search;
  const MachineModel &machine;
  int64_t batch;
  PlanSpace space;
  std::vector<std::unique_ptr<Worker>> workers;
  bool composes = false; ///< plans are composed; else compiled whole
  std::vector<Node> nodes;
  std::map<std::string, CorePrice> cores; ///< by key
  std::optional<PlanBounds> bounds;
  int64_t numSets = 0, numPlans = 0, numDropped = 0, compiled = 0;
  double gap = 0;
  std::string refusal; ///< why the first plan that is not legal is not
};

pcrt_status PlanSearch::readWork() {
  StepWork work;
  if (pcrt_status status = pc::readWork(model, options, work))
    return status;
  std::optional<FewLayers> few = FewLayers::of(model);
  bounds.emplace(model.getContext(), work, few ? few->layers() : 0, space.ranks, machine);
  composes = few && few->layers() > manyLayers;
  return PCRT_OK;
}

PlanNode PlanSearch::nodeOf(Plan plan, double bound, bool hasCore) {
  PlanNode node{nodes.size(), textOf(plan),     textOf(plan, false, false),
                bound,        plan.mesh.size(), textOf(plan, true, false)};
  if (const Tactic *recompute = plan.find("pc-recompute"))
    node.level = recompute->option("mode") == "full" ? 2 : 1;
  nodes.push_back({{}, std::move(plan), hasCore});
  return node;
}

/// What no plan stays below: the layers on one rank, with each choice of what all ranks do alone.
void PlanSearch::learnRoots() {
  std::set<std::string> known;
  for (const StrategyFlags &set : space.sets()) {
    for (const Plan &plan : space.plansOf(set, refusal)) {
      PlanCore core = PlanBounds::rootOf(PlanCore::of(plan, batch, true));
      if (!known.insert(core.key()).second)
        continue;
      CorePrice price = workers[0]->composer->priceCore(core, refusal);
      bounds->learnRoot(core, price);
      bounds->learn(core, price);
    }
    if (!known.empty())
      return;
  }
}

/// How many ranks share a layer.
int PlanSearch::splitOf(const StrategyFlags &set) const {
  std::string why;
  pcrt_status status = PCRT_OK;
  std::optional<Plan> plan = planFromFlags(set, why, status);
  if (!plan)
    return 1;
  int64_t members = 1;
  for (const auto &axis : PlanCore::of(*plan, batch, true).plan.mesh)
    members *= axis.second;
  return static_cast<int>(members);
}

/// All sets, or where plans are compiled whole all plans.
std::vector<PlanNode> PlanSearch::roots() {
  std::vector<PlanNode> all;
  for (StrategyFlags &set : space.sets()) {
    ++numSets;
    if (composes) {
      PlanNode node;
      node.id = nodes.size();
      node.text = set.text("mesh");
      node.level = splitOf(set); // small splits first: they bound those that go further
      all.push_back(std::move(node));
      nodes.push_back({std::move(set), std::nullopt, false});
      continue;
    }
    for (Plan &plan : space.plansOf(set, refusal)) {
      double bound = bounds->ofShape(plan);
      all.push_back(nodeOf(std::move(plan), bound, true));
      ++numPlans;
    }
  }
  return all;
}

std::optional<PlanSearch::Job> PlanSearch::jobOf(const PlanNode &node) {
  const Node &known = nodes[node.id];
  std::string why;
  pcrt_status status = PCRT_OK;
  if (!known.plan) {
    std::optional<Plan> plan = planFromFlags(known.set, why, status);
    if (!plan) // flags that are searched may be missing: its plans are looked at without
      return std::nullopt;
    PlanCore core = PlanCore::of(*plan, batch, true);
    if (bounds->knows(core) || bounds->ofSet(core) > node.bound)
      return std::nullopt;
    return Job{"any " + core.key(), core, std::nullopt, /*any=*/true};
  }
  PlanCore core = PlanCore::of(*known.plan, batch, false);
  if (known.hasCore)
    return Job{"plan " + node.text, core, known.plan};
  if (cores.count(core.key()))
    return std::nullopt;
  return Job{core.key(), core, std::nullopt};
}

/// The plans of a set, with what is known of them all.
OpenedNode PlanSearch::openSet(const PlanNode &node) {
  OpenedNode opened;
  StrategyFlags set = nodes[node.id].set;
  std::string why;
  pcrt_status status = PCRT_OK;
  std::optional<PlanCore> core;
  if (std::optional<Plan> plan = planFromFlags(set, why, status)) {
    core = PlanCore::of(*plan, batch, true);
    double bound = bounds->ofSet(*core);
    if (std::isinf(bound))
      return opened;
    if (!bounds->knows(*core)) { // a smaller split says more already
      opened.inside.push_back(node);
      opened.inside[0].bound = bound;
      return opened;
    }
  }
  for (Plan &plan : space.plansOf(set, refusal)) {
    PlanCore own = PlanCore::of(plan, batch, false);
    if (own.batch == 0 || !bounds->hasLayersFor(plan))
      continue;
    ++numPlans;
    if (limit() > 0 && bounds->leastBytes(plan, own) > static_cast<double>(limit())) {
      ++numDropped;
      continue;
    }
    double bound = core ? bounds->ofSet(*core, plan) : 0;
    opened.inside.push_back(nodeOf(std::move(plan), bound, false));
  }
  return opened;
}

OpenedNode PlanSearch::openNow(const PlanNode &node, std::map<std::string, Job> &jobs) {
  if (!nodes[node.id].plan)
    return openSet(node);
  OpenedNode opened;
  const Plan plan = *nodes[node.id].plan;
  PlanCore core = PlanCore::of(plan, batch, false);
  if (!nodes[node.id].hasCore) {
    const CorePrice &price = cores.at(core.key());
    if (!price.isLegal)
      return opened;
    if (limit() > 0 && bounds->leastBytes(plan, price.activationBytes) > static_cast<double>(limit())) {
      ++numDropped;
      return opened;
    }
    nodes[node.id].hasCore = true;
    opened.inside.push_back(node);
    opened.inside[0].bound = bounds->ofCore(price, plan);
    return opened;
  }
  const Job &job = jobs.at("plan " + node.text);
  opened.trial = job.composed.trial;
  nodes[node.id].plan = job.composed.plan;
  return opened;
}

void PlanSearch::runJobs(MutableArrayRef<Job *> jobs) {
  std::atomic<size_t> next = 0;
  auto work = [&](Worker &worker) {
    for (size_t i = next++; i < jobs.size(); i = next++) {
      Job &job = *jobs[i];
      if (!job.plan) {
        job.corePrice = worker.composer->priceCore(job.core, job.refusal);
        continue;
      }
      job.composed = {{}, *job.plan, /*isComposed=*/false};
      if (composes)
        job.composed = worker.composer->compose(*job.plan, cores.at(job.core.key()), job.refusal);
      if (job.composed.isComposed)
        continue;
      ++job.composed.compositions;
      if (std::optional<ProgramPrice> price = worker.priceWhole(*job.plan, job.refusal))
        job.composed.trial = price->trial;
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(workers.size(), jobs.size()); ++i)
    threads.emplace_back(work, std::ref(*workers[i]));
  work(*workers[0]);
  for (std::thread &thread : threads)
    thread.join();
}

std::vector<OpenedNode> PlanSearch::open(ArrayRef<PlanNode> asked) {
  std::map<std::string, Job> jobs;
  std::vector<std::string> keys;
  for (const PlanNode &node : asked) {
    std::optional<Job> job = jobOf(node);
    keys.push_back(job ? job->key : "");
    if (job)
      jobs.try_emplace(job->key, std::move(*job));
  }
  SmallVector<Job *> list;
  for (auto &one : jobs)
    list.push_back(&one.second);
  runJobs(list);
  for (auto &[key, job] : jobs)
    if (job.any)
      bounds->learn(job.core, job.corePrice);
    else if (!job.plan)
      cores[key] = job.corePrice;
  std::vector<OpenedNode> opened;
  std::set<std::string> counted;
  for (auto [node, key] : llvm::zip_equal(asked, keys)) {
    opened.push_back(openNow(node, jobs));
    if (!key.empty() && counted.insert(key).second)
      opened.back().compositions = jobs.at(key).corePrice.compositions + jobs.at(key).composed.compositions;
    if (!key.empty() && refusal.empty())
      refusal = jobs.at(key).refusal;
  }
  return opened;
}

/// Compiles the best composed plans whole until one fits, which becomes the only one that does: what is reported is no
/// estimate.
void PlanSearch::compileFinalists(SearchResult &result) {
  std::vector<FoundPlan> all = std::move(result.fitting), rest;
  result.fitting.clear();
  for (FoundPlan &plan : result.tooLarge)
    if (static_cast<double>(plan.trial.bytes) < (1 + composedBytes) * static_cast<double>(limit()))
      all.push_back(plan);
  llvm::sort(all, [](const FoundPlan &a, const FoundPlan &b) {
    return std::tie(a.trial.seconds, a.trial.bytes, a.node.text) <
           std::tie(b.trial.seconds, b.trial.bytes, b.node.text);
  });
  for (FoundPlan &plan : all) {
    if (!result.fitting.empty() || compiled == finalists) {
      rest.push_back(std::move(plan));
      continue;
    }
    ++compiled;
    std::optional<ProgramPrice> price = workers[0]->priceWhole(*nodes[plan.node.id].plan, refusal);
    if (!price)
      continue;
    plan.trial = price->trial;
    plan.node.text = textOf(*nodes[plan.node.id].plan); // with the layers of its stages
    bool fits = limit() == 0 || plan.trial.bytes <= limit();
    (fits ? result.fitting : result.tooLarge).push_back(std::move(plan));
  }
  if (!rest.empty() && !result.fitting.empty()) // what was composed may be as good
    result.bound = result.bound > 0 ? std::min(result.bound, rest.front().trial.seconds) : rest.front().trial.seconds;
  if (!result.fitting.empty())
    llvm::append_range(result.fitting, rest);
}

int64_t PlanSearch::limit() const {
  return options.stages.memory > 0 ? options.stages.memory : static_cast<int64_t>(machine.memoryBytes);
}

/// "141 plans of 2 ranks on cpu: 50 compiled, 12 refused, 0 too large"
std::string PlanSearch::known(const SearchResult &result) const {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << numPlans << " plans of " << space.ranks << " ranks on " << machine.name << ": ";
  if (composes)
    os << result.priced << " composed of " << result.compositions << " compiles of few layers, " << compiled
       << " compiled whole, ";
  else
    os << result.priced << " compiled, ";
  os << result.refused << " refused, " << numDropped + std::ssize(result.tooLarge) << " too large";
  return text;
}

std::string PlanSearch::line(const FoundPlan &found) const {
  std::string text;
  double bytes = static_cast<double>(found.trial.bytes);
  int unit = bytes >= 1e9 ? 2 : bytes >= 1e6 ? 1 : 0;
  const char *units[] = {"KiB", "MiB", "GiB"};
  llvm::raw_string_ostream(text) << llvm::format("%.4g s  %.4g %s  ", found.trial.seconds,
                                                 bytes / (1 << (10 * (unit + 1))), units[unit])
                                 << found.node.text;
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
  os << "searched " << known(result) << llvm::format("; gap %.1f %%\n", 100 * gap);
  double percent = trial.seconds > 0 ? 100 / trial.seconds : 0;
  os << "chosen   " << line(best)
     << llvm::format("  products %.0f %%  exposed moves %.0f %%  memory traffic %.0f %%\n", percent * trial.products,
                     percent * trial.moves, percent * (trial.seconds - trial.products - trial.moves));
  std::set<std::string> shown{best.node.form};
  for (const FoundPlan &other : result.fitting) {
    if (shown.size() == 6)
      break;
    if (!shown.insert(other.node.form).second)
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
    llvm::json::Object plan{{"plan", found.node.text}, {"step_seconds", trial.seconds}, {"arena_bytes", trial.bytes}};
    if (!plans.empty())
      plan["dearer_by"] = dearerBy(trial, result.fitting.front().trial);
    plans.push_back(std::move(plan));
  };
  llvm::for_each(result.fitting, add);
  llvm::for_each(result.tooLarge, add);
  return llvm::json::Object{{"plans", numPlans},
                            {"composed", composes ? result.priced : 0},
                            {"compiled", composes ? compiled : result.priced},
                            {"refused", result.refused},
                            {"limit", limit()},
                            {"gap", gap},
                            {"candidates", std::move(plans)}};
}

pcrt_status PlanSearch::run(Plan &plan, std::optional<llvm::json::Object> &found) {
  if (std::optional<Refusal> refused = space.read())
    return fail(refused->status, refused->why);
  if (pcrt_status status = readWork())
    return status;
  std::string text;
  llvm::raw_string_ostream os(text);
  model->print(os, OpPrintingFlags().enableDebugInfo());
  size_t threads =
      model.getContext()->isMultithreadingEnabled() ? std::max(std::thread::hardware_concurrency(), 1U) : 1;
  for (size_t i = 0; i < threads; ++i)
    workers.push_back(std::make_unique<Worker>(text, options, machine));
  if (composes)
    learnRoots();
  NotedInterrupt interrupt;
  SearchResult result = searchPlans(
      roots(), {limit(), search.compositions, composes ? composedError : 0}, [&] { return !interrupt.happened(); },
      [&](ArrayRef<PlanNode> asked) { return open(asked); });
  if (composes)
    compileFinalists(result);
  if (!result.fitting.empty()) {
    double seconds = result.fitting.front().trial.seconds;
    gap = result.bound > 0 && seconds > 0 ? std::max(1 - result.bound / seconds, 0.0) : 0;
    if (!search.isQuiet)
      tell(result);
    found = toJson(result);
    plan = *nodes[result.fitting.front().node.id].plan;
    return PCRT_OK;
  }
  if (interrupt.happened())
    return fail(PCRT_RESOURCE, "interrupted before a plan was found; " + known(result) +
                                   (refusal.empty() ? "" : "; the first was refused: " + refusal));
  if (result.tooLarge.empty() && numDropped == 0)
    return fail(PCRT_INFEASIBLE, "no plan is legal: " + known(result) + ", with the flags that were given" +
                                     (refusal.empty() ? "" : "; the first was refused: " + refusal));
  return fail(PCRT_RESOURCE, "no plan fits " + Twine(limit()) + " bytes a rank: " + known(result) +
                                 ", with the flags that were given" +
                                 (result.tooLarge.empty() ? std::string()
                                                          : "; the least that would do is " +
                                                                std::to_string(result.tooLarge.front().trial.bytes) +
                                                                " bytes: " + result.tooLarge.front().node.text));
}

} // namespace

pcrt_status pc::readWork(ModuleOp model, const CompileOptions &options, StepWork &work) {
  OwningOpRef<ModuleOp> step(model.clone());
  CompileOptions alone = options;
  alone.plan = Plan();
  std::string why;
  pcrt_status status = PCRT_OK;
  StrategyFlags precision;
  for (StringRef flag : {"precision", "gradient-precision", "residual-precision"})
    if (options.search.pins.given(flag))
      precision.set(flag, options.search.pins.text(flag));
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
  return PCRT_OK;
}

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
