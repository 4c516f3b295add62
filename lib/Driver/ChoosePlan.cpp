//===- ChoosePlan.cpp - The plan that --auto means -------------------------------------------===//
// What the Search room opens and prices, it gets from here: plans of small models are compiled whole to the planned
// phase, those of large ones put together from programs of few layers; then the best are compiled whole. What a plan
// takes is what the report will say.
//===-----------------------------------------------------------------------------===//
#include "pc/Driver/ChoosePlan.h"
#include "BlamePins.h"
#include "Finalists.h"
#include "FoundPlans.h"
#include "MixLayers.h"
#include "NotedInterrupt.h"
#include "PlanBounds.h"
#include "PlanJobs.h"
#include "PlanSpace.h"

#include "pc/IR/Diagnostics.h"
#include "pc/Shard/KnownDims.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include <set>
#include <thread>

using namespace mlir;
using namespace pc;

namespace {

/// Models with more layers than these are not compiled whole for every plan.
constexpr int64_t manyLayers = 12;
/// A composed plan is good enough where none can be better by more than this share: composed seconds are right to half
/// of it.
constexpr double composedError = 0.015;
/// A limit that no plan exceeds.
constexpr int64_t unlimited = std::numeric_limits<int64_t>::max();
/// Of a large model's plans, so many programs of few layers tell which takes the least memory.
constexpr int64_t smallestCompositions = 200;

class PlanSearch {
public:
  PlanSearch(ModuleOp model, const CompileOptions &options, const MachineModel &machine)
      : model(model), options(options), search(options.search), machine(machine), batch(batchOf(model)),
        space(search, batch, hasKnownDims(model), hasExperts(model)) {}

  pcrt_status run(Plan &plan, std::optional<llvm::json::Object> &found);
  /// The plan that takes the least memory, or with a limit the first one that does not exceed it.
  std::optional<FoundPlan> smallest(llvm::function_ref<bool()> goesOn);

private:
  pcrt_status fail(pcrt_status status, const Twine &message) {
    model.emitError() << message;
    return status;
  }
  /// A set of plans with the sizes of its layers' axes, or a plan.
  struct Node {
    size_t set;
    std::optional<size_t> family;
    AxisSizes sizes;
    int64_t microbatches = 1;
    bool hasCore = false;  ///< its bound is that of its core
    bool hasTasks = false; ///< its bound is that of its tasks
  };
  /// Reads the space, and what the model does.
  pcrt_status read();
  /// Searches while `goesOn` says so; then plans are compiled whole, while `compiles` does.
  SearchResult searchAll(llvm::function_ref<bool()> goesOn, llvm::function_ref<bool()> compiles);
  std::string whyNone(const SearchResult &result, llvm::function_ref<bool()> goesOn);
  std::optional<SmallPlan> smallestOf(const AutoOptions &pins, int64_t most, llvm::function_ref<bool()> goesOn);
  void readSets();
  void learnRoots();
  /// A set's core, where the axes that split its layers have these sizes.
  std::optional<PlanCore> coreOf(const PlanSet &set, ArrayRef<int64_t> inner) const;
  const PlanFamily &familyOf(const Node &node) const { return sets[node.set].families[*node.family]; }
  std::optional<Plan> planOf(const Node &node) {
    return space.planOf(familyOf(node), node.sizes, node.microbatches, refusal);
  }
  PlanNode nodeOf(Node node, double bound);
  void addRoots(std::vector<PlanNode> &roots);
  void addPlans(std::vector<PlanNode> &roots);
  void addProbes(std::vector<PlanNode> &roots);
  /// Calls `use` with all plans of a set whose layers' axes have these sizes, but those that are the same as others or
  /// too large.
  void forPlansOf(size_t set, ArrayRef<int64_t> inner,
                  llvm::function_ref<void(size_t family, const PlanNumbers &numbers)> use);
  PlanNumbers &numbersOf(const Node &node);
  /// What plans that share the prices of tasks have in common; empty: the plan's tasks are not priced apart.
  std::string tasksKey(const PlanNode &node, const PlanCore &core);
  /// The sequences that a plan's data ranks have of a microbatch.
  int64_t atOnce(const Node &node);
  /// What is known of a plan by cores of others.
  double boundByOthers(const Node &node, const Plan &plan);
  /// What no plan needs to be below to be left out.
  double enough() const { return best * (1 - (composes ? composedError : 0)); }
  std::vector<OpenedNode> open(ArrayRef<PlanNode> nodes);
  /// What has to be compiled before a node can be opened; nothing if all is known.
  std::optional<PlanJob> jobOf(const PlanNode &node);
  OpenedNode openNow(const PlanNode &node, std::map<std::string, PlanJob> &jobs);
  OpenedNode openSet(const PlanNode &node);
  void compileFinalists(SearchResult &result, llvm::function_ref<bool()> goesOn);
  void mixLayers(SearchResult &result, llvm::function_ref<bool()> goesOn);
  std::optional<PlanTrial> priceOnce(const Plan &plan);
  int64_t limit() const;
  /// As the search compares it.
  PlanTrial wanted(PlanTrial trial) const {
    trial.seconds = leastBytes ? static_cast<double>(trial.bytes) : trial.seconds;
    return trial;
  }
  FoundPlans found(const SearchResult &result) const;

  ModuleOp model;
  const CompileOptions &options;
  const AutoOptions &search;
  const MachineModel &machine;
  int64_t batch;
  PlanSpace space;
  std::optional<PlanWorkers> workers;
  bool composes = false;   ///< plans are composed; else compiled whole
  bool leastBytes = false; ///< those with the fewest bytes are wanted: bytes take the place of seconds
  std::vector<PlanSet> sets;
  std::vector<std::vector<PlanNumbers>> numbers; ///< of their families
  std::vector<Node> nodes;
  std::map<size_t, PlanCore> setCores; ///< by node
  std::map<size_t, double> raised;     ///< by node that is being opened: its bound, where others say more by now
  std::map<size_t, Plan> tried;        ///< by node
  std::set<std::string> triedTexts;
  std::map<std::string, CorePrice> cores; ///< by key
  std::map<std::string, TaskPrice> tasks; ///< by `tasksKey`
  std::optional<PlanBounds> bounds;
  double best = std::numeric_limits<double>::infinity();    ///< seconds of the best plan that fits
  double skipped = std::numeric_limits<double>::infinity(); ///< the least bound of plans that are not better enough
  int64_t numPlans = 0, numDropped = 0, compiled = 0;
  double gap = 0;
  bool isEstimate = false; ///< the chosen plan was composed, and not compiled whole
  std::string refusal;     ///< why the first plan that is not legal is not
};

pcrt_status PlanSearch::read() {
  if (std::optional<Refusal> refused = space.read())
    return fail(refused->status, refused->why);
  StepWork work;
  if (pcrt_status status = pc::readWork(model, options, work))
    return status;
  std::optional<FewLayers> few = FewLayers::of(model);
  bounds.emplace(model.getContext(), work, few ? &*few : nullptr, batch, space.ranks, options, machine);
  composes = few && few->layers() > manyLayers;
  return PCRT_OK;
}

void PlanSearch::readSets() {
  sets = space.sets(refusal);
  for (const PlanSet &set : sets) {
    auto &ofFamilies = numbers.emplace_back();
    for (const PlanFamily &family : set.families)
      ofFamilies.emplace_back(family.plan, model.getContext());
  }
}

std::optional<PlanCore> PlanSearch::coreOf(const PlanSet &set, ArrayRef<int64_t> inner) const {
  if (!set.isPlan) // flags that are searched may be missing: its plans are looked at without
    return std::nullopt;
  AxisSizes sizes;
  for (const auto &[axis, size] : set.base.axes) {
    const auto *it = llvm::find_if(set.inner, [&](const auto &one) { return one.first == axis; });
    sizes.push_back(it != set.inner.end() ? inner[it - set.inner.begin()] : size ? size : 2);
  }
  std::string why;
  std::optional<Plan> plan = space.planOf(set.base, sizes, 1, why);
  return plan ? std::optional(PlanCore::of(*plan, batch, true)) : std::nullopt;
}

PlanNode PlanSearch::nodeOf(Node node, double bound) {
  Plan plan = familyOf(node).plan; // but for what other tactics make of sizes
  for (auto [axis, size] : llvm::zip_equal(plan.mesh, node.sizes))
    axis.second = size;
  plan.microbatches = node.microbatches;
  PlanNode known;
  known.id = nodes.size();
  known.text = textOf(plan);
  known.form = textOf(plan, false, false);
  known.chain = textOf(plan, true, false);
  known.bound = bound;
  known.atOnce = atOnce(node);
  known.axes = plan.mesh.size();
  if (const Tactic *recompute = plan.find("pc-recompute"))
    known.level = recompute->option("mode") == "full" ? 2 : 1;
  nodes.push_back(std::move(node));
  return known;
}

/// What no plan stays below: the layers on one rank, with each choice of what all ranks do alone.
void PlanSearch::learnRoots() {
  std::map<std::string, PlanCore> alone;
  for (const PlanSet &set : sets)
    for (const PlanFamily &family : set.families) {
      PlanCore core = PlanBounds::rootOf(PlanCore::of(family.plan, batch, true));
      core.batch = batch;
      alone.try_emplace(core.key(), core);
    }
  for (const auto &[key, core] : alone) {
    CorePrice price = workers->composer().priceCore(core, refusal);
    bounds->learnRoot(core, price);
    bounds->learn(core, price);
  }
}

void PlanSearch::forPlansOf(size_t set, ArrayRef<int64_t> inner,
                            llvm::function_ref<void(size_t, const PlanNumbers &)> use) {
  SmallVector<int64_t> microbatches = space.microbatches();
  for (auto [index, family] : llvm::enumerate(sets[set].families)) {
    PlanNumbers &plan = numbers[set][index];
    for (const AxisSizes &sizes : space.sizes(family, sets[set], inner))
      for (int64_t count : microbatches) {
        plan.resize(sizes, count);
        if (space.isRepeated(family, count))
          continue;
        if (composes && (batch % (count * static_cast<int64_t>(plan.data)) || !bounds->hasLayersFor(plan)))
          continue;
        ++numPlans;
        if (composes && limit() > 0 && bounds->leastBytes(plan) > static_cast<double>(limit()))
          ++numDropped;
        else
          use(index, plan);
      }
  }
}

/// All sets.
void PlanSearch::addRoots(std::vector<PlanNode> &roots) {
  for (size_t set = 0; set < sets.size(); ++set)
    for (const AxisSizes &inner : space.innerSizes(sets[set])) {
      PlanNode node;
      node.id = nodes.size();
      std::optional<PlanCore> core = coreOf(sets[set], inner);
      if (core) {
        node.text = core->key();
        node.bound = bounds->ofSet(bounds->known(*core));
        setCores.emplace(node.id, std::move(*core));
      }
      node.level = 1; // small splits first: they bound those that go further
      for (int64_t size : inner)
        node.level *= static_cast<int>(size);
      nodes.push_back({set, std::nullopt, inner});
      roots.push_back(std::move(node));
    }
}

/// All plans.
void PlanSearch::addPlans(std::vector<PlanNode> &roots) {
  for (size_t set = 0; set < sets.size(); ++set)
    for (const AxisSizes &inner : space.innerSizes(sets[set]))
      forPlansOf(set, inner, [&](size_t family, const PlanNumbers &plan) {
        Node node{set, family, AxisSizes(plan.sizes), plan.microbatches, /*hasCore=*/!composes};
        roots.push_back(nodeOf(std::move(node), leastBytes ? bounds->leastBytes(plan) : bounds->ofShape(plan)));
      });
}

/// Those that are best by closed forms, of each mesh the best one: their prices are what others have to beat.
void PlanSearch::addProbes(std::vector<PlanNode> &roots) {
  struct Guess {
    bool isLarge; ///< bounds of bytes are far below what plans take
    double seconds;
    Node node;
  };
  constexpr double largeShare = 0.85;
  std::vector<Guess> guesses;
  for (const PlanNode &root : ArrayRef(roots)) {
    int64_t most = machine.nodeRanks ? machine.nodeRanks : space.ranks;
    auto core = setCores.find(root.id);
    if (core == setCores.end() || root.level > most || std::isinf(root.bound))
      continue;
    PlanBounds::Known known = bounds->known(core->second);
    std::map<AxisSizes, Guess> ofMeshes;
    size_t set = nodes[root.id].set;
    forPlansOf(set, nodes[root.id].sizes, [&](size_t family, const PlanNumbers &plan) {
      bool isLarge = limit() > 0 && bounds->leastBytes(plan) > largeShare * static_cast<double>(limit());
      Guess guess{isLarge, bounds->guessSeconds(known, plan), {}};
      auto [it, first] = ofMeshes.try_emplace(plan.sizes, guess);
      if (first || std::tie(guess.isLarge, guess.seconds) < std::tie(it->second.isLarge, it->second.seconds)) {
        guess.node = {set, family, plan.sizes, plan.microbatches};
        it->second = std::move(guess);
      }
    });
    for (auto &one : ofMeshes)
      guesses.push_back(std::move(one.second));
  }
  numPlans = numDropped = 0; // they are met again
  llvm::sort(guesses, [](const Guess &a, const Guess &b) {
    return std::tie(a.isLarge, a.seconds, a.node.set, a.node.sizes) <
           std::tie(b.isLarge, b.seconds, b.node.set, b.node.sizes);
  });
  constexpr size_t atOnce = 8, turns = 4;
  for (auto [i, guess] : llvm::enumerate(guesses)) {
    if (i == atOnce * turns)
      break;
    PlanNode node = nodeOf(std::move(guess.node), 0);
    node.probe = static_cast<int>(1 + i / atOnce);
    roots.push_back(std::move(node));
  }
}

PlanNumbers &PlanSearch::numbersOf(const Node &node) {
  PlanNumbers &numbers = this->numbers[node.set][*node.family];
  numbers.resize(node.sizes, node.microbatches);
  return numbers;
}

int64_t PlanSearch::atOnce(const Node &node) {
  return batch / (node.microbatches * static_cast<int64_t>(numbersOf(node).data));
}

std::string PlanSearch::tasksKey(const PlanNode &node, const PlanCore &core) {
  const PlanNumbers &plan = numbersOf(nodes[node.id]);
  if (!composes || leastBytes || node.probe || !plan.schedule || !options.train)
    return "";
  return (plan.schedule->split ? "tasks with gradients of weights apart: " : "tasks: ") + core.key();
}

double PlanSearch::boundByOthers(const Node &node, const Plan &plan) {
  PlanNumbers &numbers = numbersOf(node);
  PlanCore core = PlanCore::of(plan, batch, true);
  core.batch = atOnce(node);
  return bounds->ofSet(bounds->known(core), numbers, std::numeric_limits<double>::infinity());
}

std::optional<PlanJob> PlanSearch::jobOf(const PlanNode &node) {
  const Node &known = nodes[node.id];
  if (!known.family) {
    auto core = setCores.find(node.id);
    if (core == setCores.end() || bounds->knows(core->second) ||
        bounds->ofSet(bounds->known(core->second)) > node.bound)
      return std::nullopt;
    return PlanJob{"any " + core->second.key(), core->second, std::nullopt, /*any=*/true};
  }
  std::optional<Plan> plan = planOf(known);
  if (!plan)
    return std::nullopt;
  PlanCore core = PlanCore::of(*plan, batch, false);
  if (known.hasCore) {
    PlanJob job{"plan " + node.text, core, std::move(plan)};
    std::string key = tasksKey(node, core);
    auto it = tasks.find(key);
    if (it != tasks.end())
      job.callsTasks = bounds->callsTasks(it->second, numbersOf(known));
    if (key.empty() || known.hasTasks)
      return job;
    if (it != tasks.end())
      return std::nullopt;
    job.key = key;
    job.ofTasks = true;
    return job;
  }
  if (cores.count(core.key()))
    return std::nullopt;
  if (double bound = boundByOthers(known, *plan); !node.probe && bound > node.bound * (1 + 1e-9)) {
    raised[node.id] = bound;
    return std::nullopt;
  }
  return PlanJob{core.key(), core, std::nullopt};
}

/// The plans of a set, with what is known of them all.
OpenedNode PlanSearch::openSet(const PlanNode &node) {
  OpenedNode opened;
  const Node set = nodes[node.id];
  PlanBounds::Known known;
  if (auto core = setCores.find(node.id); core != setCores.end()) {
    known = bounds->known(core->second);
    double bound = bounds->ofSet(known);
    if (std::isinf(bound))
      return opened;
    if (!bounds->knows(core->second)) { // a smaller split says more already
      opened.inside.push_back(node);
      opened.inside[0].bound = bound;
      return opened;
    }
  }
  forPlansOf(set.set, set.sizes, [&](size_t family, const PlanNumbers &plan) {
    double bound = std::max(bounds->ofSet(known, plan, enough()), node.bound);
    if (bound >= enough()) {
      skipped = std::min(skipped, bound);
      return;
    }
    PlanNode inside = nodeOf({set.set, family, plan.sizes, plan.microbatches}, bound);
    if (!triedTexts.count(inside.text))
      opened.inside.push_back(std::move(inside));
  });
  return opened;
}

OpenedNode PlanSearch::openNow(const PlanNode &node, std::map<std::string, PlanJob> &jobs) {
  Node &known = nodes[node.id];
  if (!known.family)
    return openSet(node);
  OpenedNode opened;
  if (auto it = raised.find(node.id); it != raised.end()) {
    if (!std::isinf(it->second)) {
      opened.inside.push_back(node);
      opened.inside[0].bound = it->second;
    }
    raised.erase(it);
    return opened;
  }
  std::optional<Plan> plan = planOf(known);
  if (!plan)
    return opened;
  PlanCore core = PlanCore::of(*plan, batch, false);
  if (!known.hasCore) {
    const CorePrice &price = cores.at(core.key());
    if (!price.isLegal)
      return opened;
    PlanNumbers &plan = numbersOf(known);
    if (limit() > 0 && bounds->leastBytes(plan, price.activationBytes) > static_cast<double>(limit())) {
      ++numDropped;
      return opened;
    }
    known.hasCore = true;
    opened.inside.push_back(node);
    opened.inside[0].bound = leastBytes ? bounds->leastBytes(plan, price.activationBytes) : bounds->ofCore(price, plan);
    return opened;
  }
  if (std::string key = tasksKey(node, core); !key.empty() && !known.hasTasks) {
    const TaskPrice &price = tasks.at(key);
    known.hasTasks = true;
    opened.inside.push_back(node);
    if (price.isLegal)
      opened.inside[0].bound = bounds->ofTasks(price, cores.at(core.key()), numbersOf(known));
    return opened;
  }
  const PlanJob &job = jobs.at("plan " + node.text);
  opened.trial = wanted(job.composed.trial);
  tried.insert_or_assign(node.id, job.composed.plan);
  triedTexts.insert(node.text);
  const PlanTrial &trial = *opened.trial;
  if (trial.isLegal && (limit() == 0 || trial.bytes <= limit()))
    best = std::min(best, trial.seconds);
  return opened;
}

std::vector<OpenedNode> PlanSearch::open(ArrayRef<PlanNode> asked) {
  std::map<std::string, PlanJob> jobs;
  std::vector<std::string> keys;
  for (const PlanNode &node : asked) {
    std::optional<PlanJob> job = jobOf(node);
    keys.push_back(job ? job->key : "");
    if (job)
      jobs.try_emplace(job->key, std::move(*job));
  }
  SmallVector<PlanJob *> list;
  for (auto &one : jobs)
    list.push_back(&one.second);
  workers->run(list, composes ? &cores : nullptr);
  for (auto &[key, job] : jobs)
    if (job.ofTasks)
      tasks[key] = job.taskPrice;
    else if (job.any)
      bounds->learn(job.core, job.corePrice);
    else if (!job.plan) {
      cores[key] = job.corePrice;
      if (job.core.batch > 0 && !PlanNumbers(job.core.plan, model.getContext()).hasData())
        bounds->learn(job.core, job.corePrice);
    }
  std::vector<OpenedNode> opened;
  std::set<std::string> counted;
  for (auto [node, key] : llvm::zip_equal(asked, keys)) {
    opened.push_back(openNow(node, jobs));
    if (!key.empty() && counted.insert(key).second)
      opened.back().compositions = jobs.at(key).compositions();
    if (!key.empty() && refusal.empty())
      refusal = jobs.at(key).refusal;
  }
  return opened;
}

void PlanSearch::compileFinalists(SearchResult &result, llvm::function_ref<bool()> goesOn) {
  auto compile = [&](FoundPlan &plan) {
    std::optional<ProgramPrice> price = workers->priceWhole(tried.at(plan.node.id), goesOn, refusal);
    if (price)
      plan.trial = wanted(price->trial);
    plan.node.text = textOf(tried.at(plan.node.id)); // with the layers of its stages
    return price.has_value();
  };
  Finalists finalists = pc::compileFinalists(result, limit(), compile, goesOn);
  compiled += finalists.compiled;
  isEstimate = finalists.areEstimates;
}

/// Composed where plans are composed, with one thread.
std::optional<PlanTrial> PlanSearch::priceOnce(const Plan &plan) {
  PlanJob job{"", PlanCore::of(plan, batch, false), plan};
  if (composes && !cores.count(job.core.key()))
    cores[job.core.key()] = workers->composer().priceCore(job.core, refusal);
  if (composes && !cores.at(job.core.key()).isLegal)
    return std::nullopt;
  PlanJob *one = &job;
  workers->run(one, composes ? &cores : nullptr);
  return job.composed.trial.isLegal ? std::optional(job.composed.trial) : std::nullopt;
}

/// Adds plans whose layers are recomputed differently, where these are the fastest that fit.
void PlanSearch::mixLayers(SearchResult &result, llvm::function_ref<bool()> goesOn) {
  if (!goesOn() || limit() == 0 || leastBytes || search.pins.given("recompute") || !space.isFree("recompute"))
    return;
  auto planWith = [&](const PlanNode &node, StringRef mode) {
    PlanFamily family = familyOf(nodes[node.id]);
    family.flags.set("recompute", mode);
    return space.planOf(family, nodes[node.id].sizes, nodes[node.id].microbatches, refusal);
  };
  auto price = [&](const PlanNode &node, StringRef mode) -> std::optional<PlanTrial> {
    std::optional<Plan> plan = goesOn() ? planWith(node, mode) : std::nullopt;
    return plan ? priceOnce(*plan) : std::nullopt;
  };
  auto mix = [&](const PlanNode &node) -> std::optional<FoundPlan> {
    std::optional<Plan> plan = planWith(node, "auto");
    std::optional<ProgramPrice> whole = plan ? workers->priceMixed(*plan, limit(), goesOn, refusal) : std::nullopt;
    compiled += whole || goesOn();
    if (!whole)
      return std::nullopt;
    FoundPlan found{node, whole->trial};
    found.node.id = nodes.size();
    found.node.text = textOf(*plan);
    nodes.push_back(Node(nodes[node.id]));
    tried.insert_or_assign(found.node.id, std::move(*plan));
    return found;
  };
  addMixes(result, limit(), price, mix);
}

int64_t PlanSearch::limit() const {
  return options.stages.memory > 0 ? options.stages.memory : static_cast<int64_t>(machine.memoryBytes);
}

FoundPlans PlanSearch::found(const SearchResult &result) const {
  return {result, space.ranks, machine.name, numPlans, numDropped, compiled, composes, isEstimate, limit(), gap};
}

SearchResult PlanSearch::searchAll(llvm::function_ref<bool()> goesOn, llvm::function_ref<bool()> compiles) {
  std::string text;
  llvm::raw_string_ostream os(text);
  model->print(os, OpPrintingFlags().enableDebugInfo());
  size_t threads = search.threads ? search.threads : std::max(std::thread::hardware_concurrency(), 1U);
  if (!model.getContext()->isMultithreadingEnabled())
    threads = 1;
  workers.emplace(text, threads, options, machine);
  readSets();
  std::vector<PlanNode> roots;
  if (composes)
    learnRoots();
  if (!composes || leastBytes) {
    addPlans(roots);
  } else {
    addRoots(roots);
    addProbes(roots);
  }
  if (leastBytes) // one that makes more again is no last resort
    llvm::for_each(roots, [](PlanNode &root) { root.chain.clear(); });
  SearchResult result = searchPlans(std::move(roots), {limit(), search.compositions, composes ? composedError : 0},
                                    goesOn, [&](ArrayRef<PlanNode> asked) { return open(asked); });
  if (skipped < std::numeric_limits<double>::infinity())
    result.bound = result.bound > 0 ? std::min(result.bound, skipped) : skipped;
  if (composes)
    compileFinalists(result, compiles);
  mixLayers(result, compiles);
  return result;
}

pcrt_status PlanSearch::run(Plan &plan, std::optional<llvm::json::Object> &found) {
  if (pcrt_status status = read())
    return status;
  NotedInterrupt interrupt;
  auto goesOn = [&] { return !interrupt.happened(); };
  SearchResult result = searchAll(goesOn, goesOn);
  if (!result.fitting.empty()) {
    double seconds = result.fitting.front().trial.seconds;
    gap = result.bound > 0 && seconds > 0 ? std::max(1 - result.bound / seconds, 0.0) : 0;
    if (!search.isQuiet)
      this->found(result).tell(llvm::errs());
    found = this->found(result).json();
    plan = tried.at(result.fitting.front().node.id);
    return PCRT_OK;
  }
  std::string text = this->found(result).text(), first = refusal.empty() ? "" : "; the first was refused: " + refusal;
  if (interrupt.happened())
    return fail(PCRT_RESOURCE, "interrupted before a plan was found; " + text + first);
  if (result.tooLarge.empty() && numDropped == 0)
    return fail(PCRT_INFEASIBLE, "no plan is legal: " + text + ", with the flags that were given" + first);
  return fail(PCRT_RESOURCE, "no plan fits " + Twine(limit()) + " bytes a rank: " + text +
                                 ", with the flags that were given" + whyNone(result, goesOn));
}

std::optional<FoundPlan> PlanSearch::smallest(llvm::function_ref<bool()> goesOn) {
  if (read())
    return std::nullopt;
  leastBytes = true;
  auto isWanted = [&] { return goesOn() && (options.stages.memory == unlimited || std::isinf(best)); };
  SearchResult result = searchAll(isWanted, goesOn);
  return result.fitting.empty() ? std::nullopt : std::optional(result.fitting.front());
}

/// Of the plans that other flags leave, the smallest one, or the first found that takes `most` bytes at most.
std::optional<SmallPlan> PlanSearch::smallestOf(const AutoOptions &pins, int64_t most,
                                                llvm::function_ref<bool()> goesOn) {
  CompileOptions other = options;
  other.search = pins;
  other.search.ranks = space.ranks;
  if (composes)
    other.search.compositions = smallestCompositions;
  other.stages.memory = most;
  ScopedDiagnosticHandler quiet(model.getContext(), [](Diagnostic &) { return success(); });
  std::optional<FoundPlan> found = PlanSearch(model, other, machine).smallest(goesOn);
  return found ? std::optional(SmallPlan{found->node.text, found->trial.bytes}) : std::nullopt;
}

/// The least that would do, and the flags without which that were less.
std::string PlanSearch::whyNone(const SearchResult &result, llvm::function_ref<bool()> goesOn) {
  std::optional<SmallPlan> least;
  if (!composes && !result.tooLarge.empty() && result.bound == 0)
    least = {result.tooLarge.front().node.text, result.tooLarge.front().trial.bytes};
  else
    least = smallestOf(search, unlimited, goesOn);
  std::string why = least ? "; the least that would do is " + least->text() : "";
  if (!search.isQuiet)
    why += blamePins(search, [&](const AutoOptions &pins) { return smallestOf(pins, limit(), goesOn); });
  return why;
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
