//===- AskOtherwise.cpp - What a search would have chosen otherwise --------------------------===//
// Only of plans that the search has priced, and a few with more recomputation: a second, and no second search.
//===-----------------------------------------------------------------------------===//
#include "PlanSearch.h"
#include <cmath>

using namespace mlir;
using namespace pc;

std::optional<WhatLimits> PlanSearch::whatLimits(const SearchResult &result, bool isOfBytes,
                                                 llvm::function_ref<bool()> goesOn) {
  if (!goesOn() || isEstimate)
    return std::nullopt;
  const FoundPlan &chosen = result.fitting.front();
  WhatLimits limits;
  for (const std::string &name : search.pins.names())
    limits.pins.push_back(textOf(search.pins, name));
  limits.free = search.free;
  for (const FoundPlan &plan : result.tooLarge)
    if (plan.trial.seconds < chosen.trial.seconds &&
        (!limits.withMore || plan.trial.seconds < limits.withMore->plan.trial.seconds))
      limits.withMore = {plan.trial.bytes, plan};
  if (isOfBytes)
    return limits;

  std::vector<OtherMachine> others = otherMachines(machine, space.ranks);
  std::vector<MachineModel> machines{machine};
  for (const OtherMachine &other : others) {
    machines.push_back(other.machine);
    if (!llvm::is_contained(limits.words, other.words))
      limits.words.push_back(other.words);
  }
  std::vector<FoundPlan> fitting = result.fitting;
  addGuesses(others, fitting, goesOn);
  std::vector<const FoundPlan *> plans = worthPricing(fitting, others);
  SmallVector<PlanWorkers::AskedPlan> asked;
  for (const FoundPlan *found : plans) {
    const Plan &plan = tried.at(found->node.id);
    auto it = tasks.find(tasksKey(found->node, coreOf(nodes[found->node.id], plan)));
    asked.push_back({&plan, it != tasks.end() && bounds->callsTasks(it->second, numbersOf(nodes[found->node.id]))});
  }
  limits.onOthers = changesOn(others, plans, workers->secondsOn(machines, asked, composes));

  if (!goesOn())
    return std::nullopt;

  // Plans that recompute more are not priced while one of their chain fits.
  std::vector<FoundPlan> smaller(result.fitting.begin() + 1, result.fitting.end());
  if (space.isFree("recompute") && !search.pins.given("recompute"))
    for (auto [level, mode] : {std::pair(1, "selective"), std::pair(2, "full")})
      if (std::optional<FoundPlan> found = level > chosen.node.level ? recomputed(chosen, mode, goesOn) : std::nullopt)
        smaller.push_back(std::move(*found));
  limits.below = withLess(chosen, smaller);
  return limits;
}

/// Adds plans that closed forms put first on other machines: few plans of large models are priced in a search.
void PlanSearch::addGuesses(ArrayRef<OtherMachine> machines, std::vector<FoundPlan> &fitting,
                            llvm::function_ref<bool()> goesOn) {
  if (!composes)
    return;
  constexpr double largeShare = 0.85; // as of the first plans of a search
  constexpr size_t ofEach = 2;        // plans of a machine
  struct Guess {
    double seconds;
    Node node;
  };
  // Cores are known on this machine only: there products that are twice as fast are like links that are half as fast.
  std::vector<MachineModel> like;
  for (const OtherMachine &other : machines) {
    MachineModel one = other.machine;
    if (other.figure == "products") {
      one.node.bandwidth /= other.times;
      one.network.bandwidth /= other.times;
    }
    if (other.figure != "memory")
      like.push_back(one);
  }
  std::vector<PlanBounds> onOthers;
  std::vector<std::map<std::string, Guess>> best(like.size()); // by form
  for (const MachineModel &one : like)
    onOthers.emplace_back(model.getContext(), work, few ? &*few : nullptr, batch, space.ranks, options, one)
        .learnFrom(*bounds);
  auto seen = std::pair(numPlans, numDropped);
  double most = 2 * fitting.front().trial.seconds; // a slower plan cannot win by a figure that is halved or doubled
  for (size_t set = 0; set < sets.size(); ++set)
    for (const AxisSizes &inner : space.innerSizes(sets[set])) {
      std::optional<PlanCore> core = coreOf(sets[set], inner);
      if (!core)
        continue;
      PlanBounds::Known known = bounds->known(*core);
      if (std::isinf(known.seconds))
        continue;
      forPlansOf(set, inner, [&](size_t family, const PlanNumbers &plan) {
        if (plan.hasStages && !few->hasOneChain()) // compiled whole
          return;
        bool isLarge = limit() > 0 && bounds->leastBytes(plan) > largeShare * static_cast<double>(limit());
        if (isLarge || bounds->guessSeconds(known, plan) > most)
          return;
        for (auto [there, ofForms] : llvm::zip_equal(onOthers, best)) {
          double seconds = there.guessSeconds(known, plan);
          auto [it, isNew] = ofForms.try_emplace(std::to_string(set) + " " + std::to_string(family));
          if (isNew || seconds < it->second.seconds)
            it->second = {seconds, {set, family, plan.sizes, plan.microbatches}};
        }
      });
    }
  std::tie(numPlans, numDropped) = seen; // they were met before
  std::vector<PlanNode> asked;
  std::set<std::string> texts = triedTexts;
  for (auto &ofForms : best) {
    std::vector<std::tuple<double, StringRef, const Node *>> guesses;
    for (auto &[form, guess] : ofForms)
      guesses.push_back({guess.seconds, form, &guess.node});
    llvm::sort(guesses);
    guesses.resize(std::min(guesses.size(), ofEach));
    for (const auto &guess : guesses) {
      Node node = *std::get<const Node *>(guess);
      node.hasBare = node.hasData = node.hasTasks = true; // no bounds are wanted
      PlanNode one = nodeOf(std::move(node), 0);
      one.probe = 1;
      if (texts.insert(one.text).second)
        asked.push_back(std::move(one));
    }
  }
  while (!asked.empty() && goesOn()) {
    std::vector<PlanNode> next;
    for (auto [node, opened] : llvm::zip_equal(asked, open(asked))) {
      if (opened.trial && opened.trial->isLegal && (limit() == 0 || opened.trial->bytes <= limit()))
        fitting.push_back({node, *opened.trial});
      llvm::append_range(next, opened.inside);
    }
    asked = std::move(next);
  }
  numDropped = seen.second;
}

/// A plan of the same chain, of the fewer layers where plans are composed.
std::optional<FoundPlan> PlanSearch::recomputed(const FoundPlan &found, StringRef mode,
                                                llvm::function_ref<bool()> goesOn) {
  const Node &node = nodes[found.node.id];
  PlanFamily family = familyOf(node);
  family.flags.set("recompute", mode);
  std::optional<Plan> plan = space.planOf(family, node.sizes, node.microbatches, refusal);
  std::optional<PlanTrial> trial = plan ? priceAll(*plan, goesOn).front() : std::nullopt;
  if (!trial)
    return std::nullopt;
  FoundPlan other{found.node, *trial};
  other.node.text = textOf(*plan);
  return other;
}
