//===- PlanSearch.cpp - Searches a plan and reports the result ----------------------------------===//
// Plans of small models are compiled whole to the planned phase. Prices of large models' plans are composed from
// programs of few layers, and then the best plans are compiled whole. The seconds and bytes of a plan are the ones in
// its report.
//===-----------------------------------------------------------------------------===//
#include "PlanSearch.h"
#include "../Bound/Margins.h"
#include "AskOtherwise.h"
#include "Finalists.h"
#include "MixLayers.h"

#include "pc/Support/Diagnostics.h"

using namespace mlir;
using namespace pc;

/// Nodes that are opened together if plans are composed: many of them wait for the same core.
static constexpr int64_t composedWidth = 64;
/// A limit that no plan exceeds.
static constexpr int64_t unlimited = std::numeric_limits<int64_t>::max();
/// The most plans that a search compiles whole, one after another, to confirm that its best plan fits.
static constexpr int64_t mostRefuted = 8;
/// The most programs that are compiled to find the plan with the least memory. These are programs of few layers for a
/// large model, and whole programs for a small model for which no plan can fit.
static constexpr int64_t smallestCompositions = 200;

/// A search may stop at a nearly optimal plan only with composed prices. If every plan is compiled whole, it continues
/// to the optimum.
static SearchLimits limitsOf(const SearchProblem &problem) {
  SearchLimits limits;
  limits.objective = problem.objective;
  limits.bytes = problem.limit();
  limits.compositions = problem.mostCompositions();
  if (problem.composes()) {
    limits.settle = margins::composedSeconds;
    limits.settleAfter = problem.objective == Objective::Bytes ? 0 : margins::cheapCompositions;
    limits.gap = margins::acceptedGap;
    limits.width = composedWidth;
  }
  return limits;
}

/// The parts refer to each other, so they are created in this order.
pcrt_status PlanSearch::begin(llvm::function_ref<bool()> goesOn) {
  if (pcrt_status status = problem.read())
    return status;
  bounds.emplace(problem.context(), problem.work, problem.fewLayers(), problem.batch, problem.space.ranks,
                 problem.options, problem.machine);
  tree.emplace(problem, *bounds);
  prices.emplace(problem, *tree, *bounds, goesOn);
  incumbent.emplace(limitsOf(problem));
  opener.emplace(problem, *tree, *prices, *bounds, *incumbent);
  return PCRT_OK;
}

/// Large models first get bounds from one rank and a search over sets of plans; their best plans are then compiled
/// whole. Small models get a search over single plans.
SearchResult PlanSearch::searchAll(llvm::function_ref<bool()> goesOn) {
  if (problem.composes())
    prices->learnOneRank();
  SearchResult result =
      searchPlans(problem.boundsByCores() ? tree->setRoots() : tree->planRoots(), *incumbent, goesOn, *this);
  if (problem.composes()) {
    Finalists finalists = compileFinalists(
        result, *incumbent, [&](FoundPlan &plan) { return prices->compileWhole(plan); }, prices->goesOn);
    compiled += prices->numWhole();
    isEstimate = finalists.areEstimates;
  }
  prices->workers->giveUp();
  mixLayers(result);
  return result;
}

void PlanSearch::endRound(const PlanNode &first) {
  if (problem.boundsByCores() && incumbent->best())
    prices->compileAhead(*incumbent->best(), first.bound);
  noteSoFar(first.probe ? 0 : first.bound);
}

/// Compiles the best plan whole. Gives up after `mostRefuted` plans; later plans count as fitting by their composed
/// price. If the search has to end, accepts the plan as it is.
bool PlanSearch::confirm(FoundPlan &plan) {
  if (!problem.boundsByCores() || confirmations++ >= mostRefuted)
    return true;
  bool isLegal = prices->compileWhole(plan);
  if (!isLegal && !prices->goesOn())
    return true;
  if (isLegal && incumbent->fits(plan.trial)) {
    noteSoFar(leastLeft);
    return true;
  }
  leastLeft = 0; // slower plans of the chain must be considered again
  return false;
}

/// Mixtures need a memory limit, and the search must be free to choose the recomputation. Their prices are compared
/// with those of uniform plans.
void PlanSearch::mixLayers(SearchResult &result) {
  if (!prices->goesOn() || problem.limit() == 0 || problem.objective == Objective::Bytes ||
      problem.search.pins.given("recompute") || !problem.space.isFree("recompute"))
    return;
  // Prices plans with a recomputation that differs from their own. Plans that do not exist have no price.
  auto price = [&](ArrayRef<AskedMode> asked) {
    std::vector<Plan> plans;
    std::vector<size_t> places;
    for (auto [i, one] : llvm::enumerate(asked))
      if (std::optional<Plan> plan = tree->planWith(one.first->id, one.second)) {
        plans.push_back(std::move(*plan));
        places.push_back(i);
      }
    std::vector<std::optional<PlanTrial>> trials(asked.size());
    for (auto [place, trial] : llvm::zip_equal(places, prices->priceAll(plans)))
      trials[place] = trial;
    return trials;
  };
  // Prices a plan whose layers differ in recomputation, and adds it as a copy of the node.
  auto mix = [&](const PlanNode &node) -> std::optional<FoundPlan> {
    std::optional<Plan> plan = tree->planWith(node.id, "auto");
    std::optional<ProgramPrice> whole;
    if (plan)
      whole = prices->workers->priceMixed(*plan, problem.limit(), prices->goesOn, tree->refusal);
    compiled += whole || prices->goesOn();
    if (!whole)
      return std::nullopt;
    FoundPlan found{node, whole->trial};
    found.node.text = textOf(*plan);
    found.node.id = tree->addCopy(node.id, std::move(*plan));
    return found;
  };
  addMixes(result, problem.limit(), /*all=*/!problem.composes(), price, mix);
}

//===---------------------------------------------------------------------------===//
// Reports
//===---------------------------------------------------------------------------===//

/// Collects the numbers for the report from the parts of the search.
FoundPlans PlanSearch::found(const SearchResult &result) const {
  return {result,
          problem.space.ranks,
          problem.machine.name,
          tree->counts.plans,
          tree->counts.dropped,
          compiled,
          problem.composes(),
          isEstimate,
          problem.limit(),
          gap,
          limits ? &*limits : nullptr};
}

PlanAnswer PlanSearch::answerOf(const Plan &plan, const FoundPlans &found) const {
  PlanAnswer answer{plan, "", found.json()};
  llvm::raw_string_ostream os(answer.said);
  if (!problem.search.isQuiet)
    found.tell(os);
  return answer;
}

static double gapOf(const SearchResult &result) {
  double seconds = result.fitting.front().trial.seconds;
  return result.bound > 0 && seconds > 0 ? std::max(1 - result.bound / seconds, 0.0) : 0;
}

/// Copies the plans that fit, with the best prices known so far, into a separate answer. The other thread reads this
/// answer under the mutex.
void PlanSearch::noteSoFar(double bound) {
  leastLeft = std::max(leastLeft, bound);
  if (problem.objective == Objective::Bytes || !incumbent->best())
    return;
  SearchResult result;
  for (const FoundPlan &plan : incumbent->fitting())
    result.fitting.push_back({plan.node, prices->trialOf(plan.node.id)});
  llvm::sort(result.fitting, [](const FoundPlan &a, const FoundPlan &b) {
    return std::tie(a.trial.seconds, a.node.text) < std::tie(b.trial.seconds, b.node.text);
  });
  result.compositions = incumbent->compiled();
  result.priced = prices->numTrials();
  result.refused = prices->numRefused();
  result.bound = std::max(leastLeft, std::numeric_limits<double>::min()); // 0 would mean that no node is left
  FoundPlans found = this->found(result);
  found.gap = gapOf(result);
  found.compiled = prices->numWhole();
  found.isEstimate = problem.composes() && !prices->isWhole(result.fitting.front().node.id);
  PlanAnswer answer = answerOf(tree->triedPlan(result.fitting.front().node.id), found);
  std::scoped_lock<std::mutex> lock(mutex);
  known = std::move(answer);
}

std::optional<PlanAnswer> PlanSearch::soFar() const {
  std::scoped_lock<std::mutex> lock(mutex);
  return known;
}

/// If no plan fits, looks for the plan that needs the fewest bytes. The message names it, and it may fit once its
/// layers are assigned differently. Emits an error if no plan is legal or none fits.
pcrt_status PlanSearch::run(PlanAnswer &answer, llvm::function_ref<bool()> goesOn) {
  if (pcrt_status status = begin(goesOn))
    return status;
  SearchResult result = searchAll(goesOn);
  bool isOfBytes = false; // whether a separate search that minimizes bytes found it
  std::string text = this->found(result).text() + problem.given();
  std::optional<Plan> smallest;
  if (!result.fitting.empty()) {
    // The smallest plan is the best one that fits.
  } else if (!goesOn()) {
    return problem.fail(PCRT_RESOURCE,
                        "the search was interrupted before it found a plan; " + text + tree->firstRefusal());
  } else if (result.tooLarge.empty() && tree->counts.dropped == 0) {
    return failIllegal(text);
  } else {
    std::optional<SmallPlan> least = smallestOf(result);
    // If the limit is near that size, layers may be assigned differently and need less memory.
    while (!problem.composes() && least && least->found.trial.bytes > problem.limit()) {
      std::optional<SmallPlan> less = findOther(Objective::Seconds, problem.search, least->found.trial.bytes - 1);
      if (!less)
        break;
      least = std::move(less);
    }
    if (!least && result.tooLarge.empty() && goesOn())
      return failIllegal(text);
    if (!least || least->found.trial.bytes > problem.limit())
      return problem.fail(PCRT_RESOURCE,
                          "no plan fits " + Twine(problem.limit()) + " bytes per rank: " + text + whyNone(least));
    // Bytes of composed plans are estimates, so a plan that seemed too large may fit, and so may plans like it.
    smallest = least->plan;
    isOfBytes = true;
    isEstimate = least->isEstimate;
    for (const FoundPlan &other : result.tooLarge)
      result.bound = result.bound > 0 ? std::min(result.bound, other.trial.seconds) : other.trial.seconds;
    result.fitting.push_back(least->found);
  }
  gap = gapOf(result);
  if (!problem.search.isQuiet && goesOn() && !isEstimate)
    limits = askOtherwise(*opener, result, isOfBytes);
  answer = answerOf(smallest ? *smallest : tree->triedPlan(result.fitting.front().node.id), this->found(result));
  return PCRT_OK;
}

//===---------------------------------------------------------------------------===//
// If no plan fits
//===---------------------------------------------------------------------------===//

/// If there is a limit, the search for the fewest bytes may end at the first plan that fits.
std::optional<SmallPlan> PlanSearch::find(llvm::function_ref<bool()> goesOn) {
  if (begin(goesOn))
    return std::nullopt;
  bool endsAtFirst = problem.objective == Objective::Bytes && problem.options.memoryLimit != unlimited;
  SearchResult result = searchAll([&] { return goesOn() && !(endsAtFirst && incumbent->best()); });
  if (result.fitting.empty())
    return std::nullopt;
  const FoundPlan &found = result.fitting.front();
  return SmallPlan{found, tree->triedPlan(found.node.id), isEstimate};
}

/// Runs another search with the flags `pins` and the limit `most`. Its diagnostics are dropped, because the caller only
/// needs a plan to name.
std::optional<SmallPlan> PlanSearch::findOther(Objective objective, const AutoOptions &pins, int64_t most) {
  CompileOptions other = problem.options;
  other.search = pins;
  other.search.ranks = problem.space.ranks;
  other.memoryLimit = most;
  // If the bounds do not exclude all plans, one of them may fit.
  if (objective == Objective::Bytes && (problem.composes() || tree->counts.dropped == tree->counts.plans))
    other.search.compositions = smallestCompositions;
  ScopedDiagnosticHandler quiet(problem.context(), [](Diagnostic &) { return success(); });
  PlanSearch search(problem.model, other, problem.machine, objective);
  std::optional<SmallPlan> found = search.find(prices->goesOn);
  if (objective == Objective::Bytes && search.tree && tree->refusal.empty())
    tree->refusal = search.tree->refusal;
  return found;
}

std::optional<SmallPlan> PlanSearch::smallestOf(const AutoOptions &pins, int64_t most) {
  std::optional<SmallPlan> least = findOther(Objective::Bytes, pins, most);
  return least || problem.composes() || most == unlimited ? least : findOther(Objective::Seconds, pins, most);
}

std::optional<SmallPlan> PlanSearch::smallestOf(const SearchResult &result) {
  if (problem.composes() || result.tooLarge.empty() || result.bound > 0)
    return smallestOf(problem.search, unlimited);
  const FoundPlan &found = result.tooLarge.front();
  return SmallPlan{found, tree->triedPlan(found.node.id)};
}

/// If fewer ranks would divide the sequences of a step, the message recommends that number.
pcrt_status PlanSearch::failIllegal(const std::string &text) {
  std::string instead;
  int64_t fewer = std::min(problem.batch, problem.space.ranks - 1);
  while (fewer > 1 && problem.batch % fewer)
    --fewer;
  if (problem.hasSequences && fewer > 1 && problem.given().empty())
    instead =
        "; --ranks=" + std::to_string(fewer) + " divides the " + std::to_string(problem.batch) + " sequences of a step";
  return problem.fail(PCRT_INFEASIBLE, "no plan is legal: " + text + tree->firstRefusal() + instead);
}

std::string PlanSearch::whyNone(const std::optional<SmallPlan> &least) {
  std::string why = least ? "; the smallest plan needs " + least->text() : "";
  if (!problem.search.isQuiet)
    why += blamePins(problem.search, [&](const AutoOptions &pins) { return smallestOf(pins, problem.limit()); });
  return why;
}
