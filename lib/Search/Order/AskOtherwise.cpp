//===- AskOtherwise.cpp - The plans that a search would choose on other machines -------------===//
// Each other machine differs from the given one in one figure. Prices on the given machine give estimates for the
// others, so only a few plans are compiled again. Choices with other limits of memory are among the priced plans.
//===-----------------------------------------------------------------------------------------===//
#include "AskOtherwise.h"

using namespace mlir;
using namespace pc;

/// Returns the plans with the best estimates on other machines, among those that take at most `most` seconds here.
static std::vector<PlanNode> guessesOn(OpenPlans &search, ArrayRef<OtherMachine> machines, double most) {
  const SearchProblem &problem = search.problem;
  PlanTree &tree = search.tree;
  constexpr size_t ofEach = 2; // plans per machine
  // Cores are priced only on this machine. So a machine whose products are twice as fast is represented by this one
  // with links that are half as fast.
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
  // A form is a set of flags and a family of plans. Each form offers at most one plan per machine.
  std::vector<std::map<std::string, PlanGuess>> best(like.size()); // the best estimates, by form
  for (const MachineModel &one : like)
    onOthers
        .emplace_back(problem.context(), problem.work, problem.fewLayers(), problem.batch, problem.space.ranks,
                      problem.options, one)
        .learnFrom(search.bounds);
  for (const PlanSet &set : tree.sets())
    for (const AxisSizes &inner : problem.space.innerSizes(set)) {
      std::optional<PlanCore> core = tree.coreOf(set, inner);
      CoreBound known = core ? search.bounds.known(*core) : CoreBound();
      tree.forGuesses(set, inner, core, [&](PlanGuess guess, const PlanNumbers &plan) {
        if (guess.isLarge || guess.seconds > most)
          return;
        std::string form = std::to_string(guess.entry.set) + " " + std::to_string(guess.entry.family);
        for (auto [there, ofForms] : llvm::zip_equal(onOthers, best)) {
          guess.seconds = there.guessSeconds(known, plan);
          auto [it, isNew] = ofForms.try_emplace(form, guess);
          if (guess.seconds < it->second.seconds)
            it->second = guess;
        }
      });
    }
  std::vector<PlanNode> asked;
  std::set<std::string> texts = tree.textsOfTried();
  for (auto &ofForms : best) {
    std::vector<std::tuple<double, StringRef, const PlanEntry *>> guesses;
    for (auto &[form, guess] : ofForms)
      guesses.push_back({guess.seconds, form, &guess.entry});
    llvm::sort(guesses);
    guesses.resize(std::min(guesses.size(), ofEach));
    for (const auto &guess : guesses) {
      PlanEntry entry = *std::get<const PlanEntry *>(guess);
      entry.hasBare = entry.hasData = entry.hasTasks = true; // no bounds are needed
      PlanNumbers numbers = tree.numbersOf(entry);
      PlanNode one = tree.add(std::move(entry), numbers, 0);
      one.probe = 1;
      if (texts.insert(one.text).second)
        asked.push_back(std::move(one));
    }
  }
  return asked;
}

/// Adds plans that may be the best on other machines, because a search prices few plans of large models.
static void addGuesses(OpenPlans &search, ArrayRef<OtherMachine> machines, std::vector<FoundPlan> &fitting) {
  // A plan that is more than twice as slow does not become the fastest if one figure is halved or doubled.
  std::vector<PlanNode> asked = guessesOn(search, machines, 2 * fitting.front().trial.seconds);
  PlanCounts seen = search.tree.counts;
  while (!asked.empty() && search.prices.goesOn()) {
    std::vector<PlanNode> next;
    search.prepare(asked);
    for (const PlanNode &node : asked) {
      OpenedNode opened = search.open(node);
      if (opened.trial && opened.trial->isLegal && search.incumbent.fits(*opened.trial))
        fitting.push_back({node, *opened.trial});
      llvm::append_range(next, opened.inside);
    }
    asked = std::move(next);
  }
  search.tree.counts = seen;
}

/// Prices another plan of the same chain. The price is composed if the search composes prices.
static std::optional<FoundPlan> recomputed(OpenPlans &search, const FoundPlan &found, StringRef mode) {
  std::optional<Plan> plan = search.tree.planWith(found.node.id, mode);
  std::optional<PlanTrial> trial = plan ? search.prices.priceAll(*plan).front() : std::nullopt;
  if (!trial)
    return std::nullopt;
  FoundPlan other{found.node, *trial};
  other.node.text = textOf(*plan);
  return other;
}

/// First prices a few more plans that may be the best on other machines. Then composes the seconds of all priced plans
/// on each other machine, and looks up which plans would be chosen with other limits of memory.
std::optional<WhatLimits> pc::askOtherwise(OpenPlans &search, const SearchResult &result, bool isOfBytes) {
  const SearchProblem &problem = search.problem;
  PlanTree &tree = search.tree;
  PriceBook &prices = search.prices;
  const FoundPlan &chosen = result.fitting.front();
  WhatLimits limits;
  for (const std::string &name : problem.search.pins.names())
    limits.pins.push_back(textOf(problem.search.pins, name));
  limits.free = problem.search.free;
  // A plan that is faster but too large shows how much memory would help.
  for (const FoundPlan &plan : result.tooLarge)
    if (plan.trial.seconds < chosen.trial.seconds &&
        (!limits.withMore || plan.trial.seconds < limits.withMore->plan.trial.seconds))
      limits.withMore = {plan.trial.bytes, plan};
  if (isOfBytes)
    return limits;

  std::vector<OtherMachine> others = otherMachines(problem.machine, problem.space.ranks);
  std::vector<MachineModel> machines{problem.machine};
  for (const OtherMachine &other : others) {
    machines.push_back(other.machine);
    if (!llvm::is_contained(limits.words, other.words))
      limits.words.push_back(other.words);
  }
  std::vector<FoundPlan> fitting = result.fitting;
  if (problem.composes())
    addGuesses(search, others, fitting);
  std::vector<const FoundPlan *> plans = worthPricing(fitting, others);
  SmallVector<PlanWorkers::AskedPlan> asked;
  for (const FoundPlan *found : plans)
    asked.push_back({&tree.triedPlan(found->node.id), search.callsTasks(tree.entryOf(found->node.id))});
  limits.onOthers = changesOn(others, plans, prices.workers->secondsOn(machines, asked, problem.composes()));

  if (!prices.goesOn())
    return std::nullopt;

  // Plans that recompute more are not priced as long as a plan of their chain fits.
  std::vector<FoundPlan> smaller(result.fitting.begin() + 1, result.fitting.end());
  if (problem.space.isFree("recompute") && !problem.search.pins.given("recompute"))
    for (auto [level, mode] : {std::pair(1, "selective"), std::pair(2, "full")})
      if (std::optional<FoundPlan> found = level > chosen.node.level ? recomputed(search, chosen, mode) : std::nullopt)
        smaller.push_back(std::move(*found));
  limits.below = withLess(chosen, smaller);
  return limits;
}
