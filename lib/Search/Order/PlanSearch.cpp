//===- PlanSearch.cpp - The plan that --auto means -------------------------------------------===//
// What the Search room opens and prices, it gets from here: plans of small models are compiled whole to the planned
// phase, those of large ones put together from programs of few layers; then the best are compiled whole. What a plan
// takes is what the report will say.
//===-----------------------------------------------------------------------------===//
#include "PlanSearch.h"
#include "Finalists.h"
#include "MixLayers.h"
#include "pc/Search/CompletePlan.h"

#include "pc/Support/Diagnostics.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include <thread>

using namespace mlir;
using namespace pc;

/// Models with more layers than these are not compiled whole for every plan.
static constexpr int64_t manyLayers = 3;
/// Nodes that are opened together where plans are composed: many of them wait for the same core.
static constexpr int64_t composedWidth = 64;
/// A limit that no plan exceeds.
static constexpr int64_t unlimited = std::numeric_limits<int64_t>::max();
/// How many plans a search compiles whole, one after another, to confirm that its best plan fits.
static constexpr int64_t mostRefuted = 8;
/// How many programs are compiled at most, unless a flag says otherwise: whole ones, and ones of few layers.
static constexpr int64_t mostPlans = 1000, mostOfFewLayers = 10000;
/// How many programs tell which plan takes the least memory: programs of few layers for a large model, whole ones for a
/// small model if no plan can fit.
static constexpr int64_t smallestCompositions = 200;

static int64_t countOps(ModuleOp model) {
  int64_t ops = 0;
  model.walk([&](Operation *) { ++ops; });
  return ops;
}

pcrt_status PlanSearch::read() {
  if (std::optional<Refusal> refused = space.read())
    return fail(refused->status, refused->why);
  if (pcrt_status status = pc::readWork(model, options, work))
    return status;
  few = FewLayers::of(model);
  space.dims = dimsOf(model);
  mostChunks = few ? few->layersOfChains() + 2 : countOps(model); // with an embedding and a head
  bounds.emplace(model.getContext(), work, few ? &*few : nullptr, batch, space.ranks, options, machine);
  composes = few && few->layers() > manyLayers;
  if (composes)
    mostChunks = few->layersOfChains();
  return PCRT_OK;
}

bool PlanSearch::compileWhole(FoundPlan &plan, llvm::function_ref<bool()> goesOn) {
  auto it = whole.find(plan.node.id);
  if (it == whole.end()) {
    std::optional<ProgramPrice> price = workers->priceWhole(tried.at(plan.node.id), goesOn, refusal);
    if (!price && !goesOn())
      return false;
    it = whole.emplace(plan.node.id, price ? std::optional(price->trial) : std::nullopt).first;
  }
  if (it->second)
    plan.trial = wanted(*it->second);
  plan.node.text = textOf(tried.at(plan.node.id)); // with the layers of its stages
  return it->second.has_value();
}

void PlanSearch::beginWhole(double bound) {
  constexpr int patience = 4;
  constexpr double near = 0.025; // earlier a better plan is still likely
  if (!composes || leastBytes || fitting.empty())
    return;
  auto isFaster = [](const auto &a, const auto &b) { return a.second.trial.seconds < b.second.trial.seconds; };
  auto fastest = std::min_element(fitting.begin(), fitting.end(), isFaster);
  if (leader != fastest->first) {
    workers->giveUp();
    leader = fastest->first;
    roundsOfLeader = 0;
  }
  if (bound < (1 - near) * fastest->second.trial.seconds || whole.count(*leader))
    return;
  if (++roundsOfLeader == patience)
    workers->beginWhole(tried.at(*leader));
}

bool PlanSearch::confirm(FoundPlan &plan, llvm::function_ref<bool()> goesOn) {
  if (!composes || leastBytes || confirmations++ >= mostRefuted)
    return true;
  bool isLegal = compileWhole(plan, goesOn);
  if (!isLegal && !goesOn())
    return true;
  if (isLegal && (limit() == 0 || plan.trial.bytes <= limit())) {
    confirmed = {best, plan.trial.seconds};
    noteSoFar(leastLeft);
    return true;
  }
  fitting.erase(plan.node.id);
  best = std::numeric_limits<double>::infinity();
  for (const auto &other : fitting)
    best = std::min(best, other.second.trial.seconds);
  leastLeft = 0; // dearer plans of its chain are left again
  return false;
}

void PlanSearch::compileFinalists(SearchResult &result, llvm::function_ref<bool()> goesOn) {
  Finalists finalists =
      pc::compileFinalists(result, limit(), [&](FoundPlan &plan) { return compileWhole(plan, goesOn); }, goesOn);
  compiled += std::ssize(whole);
  isEstimate = finalists.areEstimates;
}

std::vector<std::optional<PlanTrial>> PlanSearch::priceAll(ArrayRef<Plan> plans, llvm::function_ref<bool()> goesOn) {
  std::vector<PlanJob> jobs;
  std::map<std::string, PlanJob> ofCores;
  for (const Plan &plan : plans) {
    const PlanCore &core = jobs.emplace_back(PlanJob{"", PlanCore::of(plan, batch, false), plan}).core;
    if (composes && !cores.count(core.key()))
      ofCores.try_emplace(core.key(), PlanJob{core.key(), core, std::nullopt});
  }
  auto run = [&](ArrayRef<PlanJob *> list) {
    constexpr size_t atOnce = 8; // before Ctrl-C is asked for again
    while (!list.empty() && goesOn()) {
      SmallVector<PlanJob *> some(list.take_front(atOnce));
      workers->run(some, composes ? &cores : nullptr);
      list = list.drop_front(some.size());
    }
  };
  SmallVector<PlanJob *> list;
  for (auto &one : ofCores)
    list.push_back(&one.second);
  run(list);
  for (auto &[key, job] : ofCores)
    if (job.isDone)
      cores[key] = job.corePrice;
  list.clear();
  for (PlanJob &job : jobs)
    if (auto it = cores.find(job.core.key()); !composes || (it != cores.end() && it->second.isLegal))
      list.push_back(&job);
  run(list);
  std::vector<std::optional<PlanTrial>> trials;
  for (const PlanJob &job : jobs)
    trials.push_back(job.composed.trial.isLegal ? std::optional(job.composed.trial) : std::nullopt);
  return trials;
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
  auto price = [&](ArrayRef<AskedMode> asked) {
    std::vector<Plan> plans;
    std::vector<size_t> places;
    for (auto [i, one] : llvm::enumerate(asked))
      if (std::optional<Plan> plan = planWith(*one.first, one.second)) {
        plans.push_back(std::move(*plan));
        places.push_back(i);
      }
    std::vector<std::optional<PlanTrial>> trials(asked.size());
    for (auto [place, trial] : llvm::zip_equal(places, priceAll(plans, goesOn)))
      trials[place] = trial;
    return trials;
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
  addMixes(result, limit(), /*all=*/!composes, price, mix);
}

int64_t PlanSearch::mostCompositions() const {
  return search.compositions ? search.compositions : composes ? mostOfFewLayers : mostPlans;
}

int64_t PlanSearch::limit() const { return options.memoryLimitOn(machine); }

FoundPlans PlanSearch::found(const SearchResult &result) const {
  return {result,
          space.ranks,
          machine.name,
          numPlans,
          numDropped,
          compiled,
          composes,
          isEstimate,
          limit(),
          gap,
          limits ? &*limits : nullptr};
}

SearchResult PlanSearch::searchAll(llvm::function_ref<bool()> goesOn, llvm::function_ref<bool()> compiles) {
  std::string text;
  llvm::raw_string_ostream os(text);
  model->print(os, OpPrintingFlags().enableDebugInfo());
  size_t threads = search.threads ? search.threads : std::max(std::thread::hardware_concurrency(), 1U);
  if (!model.getContext()->isMultithreadingEnabled())
    threads = 1;
  workers.emplace(text, threads, options, machine, compiles);
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
  SearchResult result = searchPlans(
      std::move(roots),
      {limit(), mostCompositions(), composes ? composedError : 0, settleAfter(), composes ? acceptedGap : 0,
       composes ? composedWidth : SearchLimits().width},
      goesOn, [&](ArrayRef<PlanNode> asked) { return open(asked); },
      [&](FoundPlan &plan) { return confirm(plan, compiles); });
  if (composes)
    compileFinalists(result, compiles);
  workers->giveUp();
  mixLayers(result, compiles);
  return result;
}

/// ", with --auto=tp --zero=1"
std::string PlanSearch::given() const {
  std::string text = search.free.empty() ? "" : " --auto=" + search.free;
  for (const std::string &name : search.pins.names())
    text += " " + pc::textOf(search.pins, name);
  return text.empty() ? "" : ", with" + text;
}

std::string PlanSearch::firstRefusal() const {
  std::string first = refusal;
  if (first.empty() && isUneven)
    first = "ranks and microbatches do not divide the " + std::to_string(batch) + " sequences of a step";
  else if (first.empty() && !given().empty()) // flags that were not given are not to blame
    first = unlike;
  return first.empty() ? "" : "; the first was refused: " + first;
}

pcrt_status PlanSearch::failIllegal(const std::string &text) {
  std::string instead;
  int64_t fewer = std::min(batch, space.ranks - 1);
  while (fewer > 1 && batch % fewer)
    --fewer;
  if (hasSequences && fewer > 1 && given().empty())
    instead = "; --ranks=" + std::to_string(fewer) + " divides the " + std::to_string(batch) + " sequences of a step";
  return fail(PCRT_INFEASIBLE, "no plan is legal: " + text + firstRefusal() + instead);
}

PlanAnswer PlanSearch::answerOf(const Plan &plan, const FoundPlans &found) const {
  PlanAnswer answer{plan, "", found.json()};
  llvm::raw_string_ostream os(answer.said);
  if (!search.isQuiet)
    found.tell(os);
  return answer;
}

static double gapOf(const SearchResult &result) {
  double seconds = result.fitting.front().trial.seconds;
  return result.bound > 0 && seconds > 0 ? std::max(1 - result.bound / seconds, 0.0) : 0;
}

void PlanSearch::noteSoFar(double bound) {
  leastLeft = std::max(leastLeft, bound);
  if (leastBytes || fitting.empty())
    return;
  SearchResult result;
  for (const auto &[node, plan] : fitting)
    result.fitting.push_back({plan.node, trialOf(node)});
  llvm::sort(result.fitting, [](const FoundPlan &a, const FoundPlan &b) {
    return std::tie(a.trial.seconds, a.node.text) < std::tie(b.trial.seconds, b.node.text);
  });
  result.compositions = compositions;
  result.priced = std::ssize(trials);
  result.refused = llvm::count_if(trials, [](const auto &one) { return !one.second.isLegal; });
  result.bound = std::max(leastLeft, std::numeric_limits<double>::min()); // there is always something left
  FoundPlans found = this->found(result);
  found.gap = gapOf(result);
  found.compiled = std::ssize(whole);
  found.isEstimate = composes && !whole.count(result.fitting.front().node.id);
  PlanAnswer answer = answerOf(tried.at(result.fitting.front().node.id), found);
  std::scoped_lock<std::mutex> lock(mutex);
  known = std::move(answer);
}

std::optional<PlanAnswer> PlanSearch::soFar() const {
  std::scoped_lock<std::mutex> lock(mutex);
  return known;
}

pcrt_status PlanSearch::run(PlanAnswer &answer, llvm::function_ref<bool()> goesOn) {
  if (pcrt_status status = read())
    return status;
  SearchResult result = searchAll(goesOn, goesOn);
  bool isOfBytes = false; // another search has found it
  std::string text = this->found(result).text() + given();
  std::optional<Plan> smallest;
  if (!result.fitting.empty()) {
    // It is the best that fits.
  } else if (!goesOn()) {
    return fail(PCRT_RESOURCE, "interrupted before a plan was found; " + text + firstRefusal());
  } else if (result.tooLarge.empty() && numDropped == 0) {
    return failIllegal(text);
  } else {
    std::optional<SmallPlan> least = smallestOf(result, goesOn);
    // With a limit near that one, layers may be dealt otherwise, and take less.
    while (!composes && least && least->found.trial.bytes > limit()) {
      std::optional<SmallPlan> less = fastestOf(search, least->found.trial.bytes - 1, goesOn);
      if (!less)
        break;
      least = std::move(less);
    }
    if (!least && result.tooLarge.empty() && goesOn())
      return failIllegal(text);
    if (!least || least->found.trial.bytes > limit())
      return fail(PCRT_RESOURCE, "no plan fits " + Twine(limit()) + " bytes a rank: " + text + whyNone(least, goesOn));
    // Bytes of composed plans are estimates, so one that seemed too large may fit, and those beside it.
    smallest = least->plan;
    isOfBytes = true;
    isEstimate = least->isEstimate;
    for (const FoundPlan &other : result.tooLarge)
      result.bound = result.bound > 0 ? std::min(result.bound, other.trial.seconds) : other.trial.seconds;
    result.fitting.push_back(least->found);
  }
  gap = gapOf(result);
  if (!search.isQuiet)
    limits = whatLimits(result, isOfBytes, goesOn);
  answer = answerOf(smallest ? *smallest : tried.at(result.fitting.front().node.id), this->found(result));
  return PCRT_OK;
}

std::optional<SmallPlan> PlanSearch::smallest(llvm::function_ref<bool()> goesOn) {
  if (read())
    return std::nullopt;
  leastBytes = true;
  auto isWanted = [&] { return goesOn() && (options.memoryLimit == unlimited || std::isinf(best)); };
  SearchResult result = searchAll(isWanted, goesOn);
  if (result.fitting.empty())
    return std::nullopt;
  FoundPlan found = result.fitting.front();
  found.trial = trialOf(found.node.id); // bytes took the place of its seconds
  found.node.level = -found.node.level; // and those with more computed again came first
  return SmallPlan{found, tried.at(found.node.id), isEstimate};
}

/// The options of another search for as many ranks: what its flags leave, and the bytes that a plan may take.
CompileOptions PlanSearch::optionsOf(const AutoOptions &pins, int64_t most) const {
  CompileOptions other = options;
  other.search = pins;
  other.search.ranks = space.ranks;
  other.memoryLimit = most;
  return other;
}

/// The smallest plan that the flags `pins` leave, or the first one found that takes `most` bytes at most.
std::optional<SmallPlan> PlanSearch::smallestOf(const AutoOptions &pins, int64_t most,
                                                llvm::function_ref<bool()> goesOn) {
  CompileOptions other = optionsOf(pins, most);
  if (composes || numDropped == numPlans) // else a plan that fits may be among them
    other.search.compositions = smallestCompositions;
  ScopedDiagnosticHandler quiet(model.getContext(), [](Diagnostic &) { return success(); });
  PlanSearch smallest(model, other, machine);
  std::optional<SmallPlan> least = smallest.smallest(goesOn);
  if (refusal.empty())
    refusal = smallest.refusal;
  return least || composes || most == unlimited ? least : fastestOf(pins, most, goesOn);
}

/// The fastest plan that the flags `pins` leave and that takes `most` bytes at most: layers are dealt to stages, and
/// recomputed or not, as that needs.
std::optional<SmallPlan> PlanSearch::fastestOf(const AutoOptions &pins, int64_t most,
                                               llvm::function_ref<bool()> goesOn) {
  CompileOptions other = optionsOf(pins, most);
  ScopedDiagnosticHandler quiet(model.getContext(), [](Diagnostic &) { return success(); });
  PlanSearch fastest(model, other, machine);
  if (fastest.read())
    return std::nullopt;
  SearchResult result = fastest.searchAll(goesOn, goesOn);
  if (result.fitting.empty())
    return std::nullopt;
  const FoundPlan &found = result.fitting.front();
  return SmallPlan{found, fastest.tried.at(found.node.id)};
}

/// The smallest plan of a search in which none fits.
std::optional<SmallPlan> PlanSearch::smallestOf(const SearchResult &result, llvm::function_ref<bool()> goesOn) {
  if (composes || result.tooLarge.empty() || result.bound > 0)
    return smallestOf(search, unlimited, goesOn);
  const FoundPlan &found = result.tooLarge.front();
  return SmallPlan{found, tried.at(found.node.id)};
}

/// The least that would do, and the flags without which that were less.
std::string PlanSearch::whyNone(const std::optional<SmallPlan> &least, llvm::function_ref<bool()> goesOn) {
  std::string why = least ? "; the least that would do is " + least->text() : "";
  if (!search.isQuiet)
    why += blamePins(search, [&](const AutoOptions &pins) { return smallestOf(pins, limit(), goesOn); });
  return why;
}
