//===- PlanTree.cpp - The nodes of a search -----------------------------------------------------===//
// Nodes are created when they are needed: first one per set, then one per plan. A plan whose bound on bytes is above
// the limit is counted, but gets no node.
//===--------------------------------------------------------------------------------------------===//
#include "PlanTree.h"
#include "../Bound/Margins.h"

using namespace mlir;
using namespace pc;

/// Reads the numbers of each family once, because plans of a family only resize them.
PlanTree::PlanTree(const SearchProblem &problem, const PlanBounds &bounds) : problem(problem), bounds(bounds) {
  allSets = problem.space.sets(unlike);
  for (const PlanSet &set : allSets) {
    auto &ofFamilies = numbers.emplace_back();
    for (const PlanFamily &family : set.families)
      ofFamilies.emplace_back(family.plan, problem.context());
  }
}

PlanNumbers PlanTree::numbersOf(const PlanEntry &entry) const {
  PlanNumbers plan = numbers[entry.set][entry.family];
  plan.resize(entry.sizes, entry.microbatches);
  return plan;
}

std::optional<Plan> PlanTree::planWith(size_t id, StringRef mode) {
  const PlanEntry &entry = entryOf(id);
  PlanFamily family = familyOf(entry);
  family.flags.set("recompute", mode);
  return problem.space.planOf(family, entry.sizes, entry.microbatches, refusal);
}

/// Uses the given sizes for the axes that split layers. An axis that the family leaves open and that does not split
/// layers gets size 2.
std::optional<PlanCore> PlanTree::coreOf(const PlanSet &set, ArrayRef<int64_t> inner) const {
  if (!set.isPlan) // flags to search may be missing, so plans are enumerated without the core
    return std::nullopt;
  AxisSizes sizes;
  for (const auto &[axis, size] : set.base.axes) {
    const auto *it = llvm::find_if(set.inner, [&](const auto &one) { return one.first == axis; });
    sizes.push_back(it != set.inner.end() ? inner[it - set.inner.begin()] : size ? size : 2);
  }
  std::string why;
  std::optional<Plan> plan = problem.space.planOf(set.base, sizes, 1, why);
  int64_t ranks = 1;
  return plan ? std::optional(PlanCore::of(withoutInnerData(*plan, ranks), problem.batch, true)) : std::nullopt;
}

/// The text identifies the plan. `turn` decides in which order plans with equal bounds are opened. `chain` decides
/// which plans are tried only if smaller ones do not fit.
PlanNode PlanTree::add(PlanEntry entry, const PlanNumbers &numbers, double bound) {
  Plan plan = familyOf(entry).plan; // keeps the sizes that other tactics derive
  for (auto [axis, size] : llvm::zip_equal(plan.mesh, entry.sizes))
    axis.second = size;
  plan.microbatches = entry.microbatches;
  PlanNode node;
  node.id = setNodes.size() + entries.size();
  node.text = textOf(plan);
  node.form = textOf(plan, false, false);
  node.bound = bound;
  if (auto recompute = plan.find<RecomputeTactic>())
    node.level = recompute->isFull() ? 2 : 1;
  auto axes = static_cast<int64_t>(plan.mesh.size());
  if (problem.objective == Objective::Seconds) {
    // The price of a core with more sequences at a time is a bound for plans with fewer sequences. Less recomputation
    // takes less time.
    node.turn = {-atOnce(numbers), node.level, axes};
    node.chain = textOf(plan, true, false);
  } else {
    // Fewer sequences at once and more recomputation need less memory, so each chain begins with its smallest plan.
    node.turn = {atOnce(numbers), -node.level, axes};
  }
  entries.push_back(std::move(entry));
  return node;
}

size_t PlanTree::addCopy(size_t id, Plan plan) {
  size_t copy = setNodes.size() + entries.size();
  entries.push_back(PlanEntry(entryOf(id)));
  tried.insert_or_assign(copy, std::move(plan));
  return copy;
}

/// Enumerates families, sizes of axes and numbers of microbatches. Counts plans that are too large by their bound, but
/// does not pass them to `use`.
PlanCounts PlanTree::forPlansOf(size_t set, ArrayRef<int64_t> inner,
                                llvm::function_ref<void(size_t, const PlanNumbers &)> use) {
  PlanCounts found;
  SmallVector<int64_t> microbatches = problem.space.microbatches();
  for (auto [index, family] : llvm::enumerate(allSets[set].families)) {
    PlanNumbers plan = numbers[set][index];
    for (const AxisSizes &sizes : problem.space.sizes(family, allSets[set], inner))
      for (int64_t count : microbatches) {
        plan.resize(sizes, count);
        if (problem.space.isRepeated(family, count))
          continue;
        int64_t parts = count * static_cast<int64_t>(plan.data) * plan.sequenceRanks;
        bool divides = !problem.hasSequences || problem.batch % parts == 0;
        isUneven |= !divides;
        if (!divides || plan.shape.stages * plan.shape.chunks > problem.mostChunks)
          continue;
        ++found.plans;
        if (problem.limit() > 0 && bounds.leastBytes(plan) > static_cast<double>(problem.limit()))
          ++found.dropped;
        else
          use(index, plan);
      }
  }
  return found;
}

/// Returns one root for each set and each size of the axes that split its layers. The bound of a root comes from prices
/// on one rank. Probes follow after the sets.
std::vector<PlanNode> PlanTree::setRoots() {
  std::vector<PlanNode> roots;
  for (size_t set = 0; set < allSets.size(); ++set)
    for (const AxisSizes &inner : problem.space.innerSizes(allSets[set])) {
      PlanNode &node = roots.emplace_back();
      node.id = setNodes.size();
      std::optional<PlanCore> core = coreOf(allSets[set], inner);
      if (core) {
        node.text = core->key();
        node.bound = bounds.ofSet(bounds.known(*core));
      }
      node.turn[1] = 1; // small splits first: they are bounds for further splits
      for (int64_t size : inner)
        node.turn[1] *= size;
      setNodes.push_back({set, inner, std::move(core)});
    }
  addProbes(roots);
  return roots;
}

/// If prices are not composed, there are no cores, and the bound of a plan follows from its shape or from its bytes.
std::vector<PlanNode> PlanTree::planRoots() {
  std::vector<PlanNode> roots;
  for (size_t set = 0; set < allSets.size(); ++set)
    for (const AxisSizes &inner : problem.space.innerSizes(allSets[set])) {
      PlanCounts found = forPlansOf(set, inner, [&](size_t family, const PlanNumbers &plan) {
        double bound = problem.objective == Objective::Bytes ? bounds.leastBytes(plan) : bounds.ofShape(plan);
        PlanEntry entry{set, family, plan.sizes, plan.microbatches};
        entry.hasCore = !problem.composes(); // the plan has no core
        roots.push_back(add(std::move(entry), plan, bound));
      });
      counts.plans += found.plans;
      counts.dropped += found.dropped;
    }
  return roots;
}

/// Estimates need a core with a known bound. A plan with stages is estimated only if the model has one chain of layers.
void PlanTree::forGuesses(const PlanSet &set, ArrayRef<int64_t> inner, const std::optional<PlanCore> &core,
                          llvm::function_ref<void(const PlanGuess &, const PlanNumbers &)> use) {
  CoreBound known = core ? bounds.known(*core) : CoreBound();
  if (!core || std::isinf(known.seconds))
    return;
  auto place = static_cast<size_t>(&set - allSets.data());
  forPlansOf(place, inner, [&](size_t family, const PlanNumbers &plan) {
    if (plan.hasStages && !problem.few->hasOneChain()) // such a plan is compiled whole
      return;
    bool isLarge =
        problem.limit() > 0 && bounds.leastBytes(plan) > margins::likelyTooLarge * static_cast<double>(problem.limit());
    use({{place, family, plan.sizes, plan.microbatches}, isLarge, bounds.guessSeconds(known, plan)}, plan);
  });
}

/// Adds, for each mesh, the plan with the best estimate. Later plans must then be better than the prices of these
/// probes.
void PlanTree::addProbes(std::vector<PlanNode> &roots) {
  std::vector<PlanGuess> guesses;
  for (const SetNode &set : setNodes) {
    // Axes that split layers communicate most, so plans that split layers over more ranks than a node has are no
    // probes.
    int64_t most = problem.machine.nodeRanks ? problem.machine.nodeRanks : problem.space.ranks, split = 1;
    for (int64_t size : set.inner)
      split *= size;
    if (split > most)
      continue;
    std::map<AxisSizes, PlanGuess> ofMeshes;
    forGuesses(allSets[set.set], set.inner, set.core, [&](const PlanGuess &guess, const PlanNumbers &plan) {
      auto [it, first] = ofMeshes.try_emplace(plan.sizes, guess);
      if (std::tie(guess.isLarge, guess.seconds) < std::tie(it->second.isLarge, it->second.seconds))
        it->second = guess;
    });
    for (auto &one : ofMeshes)
      guesses.push_back(std::move(one.second));
  }
  auto bySeconds = [](const PlanGuess &a, const PlanGuess &b) {
    return std::tie(a.isLarge, a.seconds, a.entry.set, a.entry.sizes) <
           std::tie(b.isLarge, b.seconds, b.entry.set, b.entry.sizes);
  };
  llvm::sort(guesses, bySeconds);
  // Plans with equal numbers of stages and data ranks are similar, so other plans are tried between them.
  std::map<std::pair<int64_t, double>, double> before;
  for (PlanGuess &guess : guesses) {
    PlanNumbers plan = numbersOf(guess.entry);
    guess.seconds *= 1 + margins::alikePlan * before[{plan.shape.stages, plan.data}]++;
  }
  llvm::sort(guesses, bySeconds);
  // Probes of one group have the same number: the search compiles a group in parallel.
  constexpr size_t together = 8, rounds = 8;
  for (auto [i, guess] : llvm::enumerate(guesses)) {
    if (i == together * rounds)
      break;
    guess.entry.hasBare = guess.entry.hasData = true;
    PlanNumbers plan = numbersOf(guess.entry);
    PlanNode node = add(std::move(guess.entry), plan, 0);
    node.probe = static_cast<int>(1 + i / together);
    roots.push_back(std::move(node));
  }
}

std::string PlanTree::firstRefusal() const {
  std::string first = refusal;
  if (first.empty() && isUneven)
    first = "the ranks and microbatches do not divide the " + std::to_string(problem.batch) + " sequences of a step";
  else if (first.empty() && !problem.given().empty()) // the message can name only flags that were given
    first = unlike;
  return first.empty() ? "" : "; the first one failed with: " + first;
}
