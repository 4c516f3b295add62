//===- PriceBook.cpp - Keeps prices and requests missing ones -----------------------------------===//
// Prices of cores and tasks are kept by key, and prices of plans by node. The best composed plan may be compiled whole
// in the background.
//===--------------------------------------------------------------------------------------------===//
#include "PriceBook.h"
#include "../Bound/Margins.h"

#include <thread>

using namespace mlir;
using namespace pc;

static size_t threadsOf(const SearchProblem &problem) {
  if (!problem.context()->isMultithreadingEnabled())
    return 1;
  return problem.search.threads ? problem.search.threads : std::max(std::thread::hardware_concurrency(), 1U);
}

/// Workers parse the model from its text, which therefore contains the locations.
PriceBook::PriceBook(const SearchProblem &problem, PlanTree &tree, PlanBounds &bounds,
                     llvm::function_ref<bool()> goesOn)
    : goesOn(goesOn), problem(problem), tree(tree), bounds(bounds) {
  std::string text;
  llvm::raw_string_ostream os(text);
  ModuleOp(problem.model)->print(os, OpPrintingFlags().enableDebugInfo());
  workers.emplace(text, threadsOf(problem), problem.options, problem.machine, goesOn);
}

/// Collects the different combinations of tactics that need no axis, and prices each on one rank with all sequences.
void PriceBook::learnOneRank() {
  std::map<std::string, PlanCore> alone;
  for (const PlanSet &set : tree.sets())
    for (const PlanFamily &family : set.families) {
      PlanCore core = PlanBounds::onOneRank(PlanCore::of(family.plan, problem.batch, true));
      core.batch = problem.batch;
      alone.try_emplace(core.key(), core);
    }
  for (const auto &[key, core] : alone) {
    CorePrice price = workers->composer().priceCore(core, tree.refusal);
    bounds.learnOneRank(core, price);
    bounds.learn(core, price);
  }
}

/// After the jobs have run, records the prices of cores and tasks. PlanBounds learns those cores that bound others.
void PriceBook::run(std::map<std::string, PlanJob> &jobs) {
  SmallVector<PlanJob *> list;
  for (auto &one : jobs)
    list.push_back(&one.second);
  // The longest jobs come first, so that threads end at about the same time.
  llvm::sort(list, [](const PlanJob *a, const PlanJob *b) {
    auto turn = [](const PlanJob &job) { return std::tuple(!job.plan, job.ofTasks, StringRef(job.key)); };
    return turn(*a) < turn(*b);
  });
  run(list);
  for (auto &[key, job] : jobs)
    if (!job.isDone) {
      continue;
    } else if (job.ofTasks) {
      tasks[key] = job.taskPrice;
    } else if (job.any) {
      bounds.learn(job.core, job.corePrice);
    } else if (!job.plan) {
      cores[key] = job.corePrice;
      if (job.core.batch > 0 && !PlanNumbers(job.core.plan, problem.context()).hasData())
        bounds.learn(job.core, job.corePrice);
    }
}

/// Returns the part of a plan that determines how its ranks split layers.
static PlanCore splitOf(const Plan &plan, int64_t batch) {
  PlanCore split = PlanCore::of(plan, batch, true);
  llvm::erase_if(split.plan.tactics, [](const Tactic &tactic) {
    const TacticInfo *row = tactic.info();
    return row && row->fromFlags && tactic.axes().empty() && tactic.list("axes").empty();
  });
  return split;
}

bool PriceBook::isRefused(const Plan &plan) const {
  const bool *refused = problem.composes() ? nullptr : find(refusedSplits, splitOf(plan, problem.batch).key());
  return refused && *refused;
}

/// Compiles the plan with only those tactics that split layers, and records whether this plan was refused. Other plans
/// with the same split are then not compiled at all. A plan without axes has no split.
int PriceBook::noteRefused(const Plan &plan) {
  PlanCore split = splitOf(plan, problem.batch);
  auto [it, isNew] = refusedSplits.try_emplace(split.key(), false);
  if (!isNew || split.plan.mesh.empty())
    return 0;
  PlanJob job{split.key(), split, split.plan};
  PlanJob *jobs[] = {&job};
  workers->run(jobs, nullptr);
  it->second = job.isDone && !job.composed.trial.isLegal;
  return 1;
}

void PriceBook::setTrial(size_t id, const ComposedPlan &priced) {
  trials[id] = priced.trial;
  if (problem.composes() && !priced.isComposed)
    whole.emplace(id, priced.trial.isLegal ? std::optional(priced.trial) : std::nullopt);
}

PlanTrial PriceBook::trialOf(size_t id) const {
  auto it = whole.find(id);
  return it != whole.end() && it->second ? *it->second : trials.at(id);
}

/// Keeps the result, even if the plan was refused. Afterwards the node's text shows the layers of its stages.
bool PriceBook::compileWhole(FoundPlan &plan) {
  auto it = whole.find(plan.node.id);
  if (it == whole.end()) {
    std::optional<ProgramPrice> price = workers->priceWhole(tree.triedPlan(plan.node.id), goesOn, tree.refusal);
    if (!price && !goesOn())
      return false;
    it = whole.emplace(plan.node.id, price ? std::optional(price->trial) : std::nullopt).first;
  }
  if (it->second)
    plan.trial = *it->second;
  plan.node.text = textOf(tree.triedPlan(plan.node.id)); // includes the layers of its stages
  return it->second.has_value();
}

/// Begins only after the same plan has been the best for a few rounds and no other plan can be much better. If another
/// plan becomes the best, cancels the compile of the previous one.
void PriceBook::compileAhead(const FoundPlan &best, double bound) {
  constexpr int patience = 4;
  if (leader != best.node.id) {
    workers->giveUp();
    leader = best.node.id;
    roundsOfLeader = 0;
  }
  if (bound < (1 - margins::likelyBest) * best.trial.seconds || isWhole(*leader))
    return;
  if (++roundsOfLeader == patience)
    workers->beginWhole(tree.triedPlan(*leader));
}

int64_t PriceBook::numRefused() const {
  return llvm::count_if(trials, [](const auto &one) { return !one.second.isLegal; });
}

/// First prices the cores that are missing, then composes the plans. Works in groups of eight, so that Ctrl-C is
/// noticed between them.
std::vector<std::optional<PlanTrial>> PriceBook::priceAll(ArrayRef<Plan> plans) {
  std::vector<PlanJob> jobs;
  std::map<std::string, PlanJob> ofCores;
  for (const Plan &plan : plans) {
    const PlanCore &core = jobs.emplace_back(PlanJob{"", PlanCore::of(plan, problem.batch, false), plan}).core;
    if (problem.composes() && !this->core(core))
      ofCores.try_emplace(core.key(), PlanJob{core.key(), core, std::nullopt});
  }
  auto runSome = [&](ArrayRef<PlanJob *> list) {
    constexpr size_t together = 8; // plans between two checks for Ctrl-C
    while (!list.empty() && goesOn()) {
      SmallVector<PlanJob *> some(list.take_front(together));
      run(some);
      list = list.drop_front(some.size());
    }
  };
  SmallVector<PlanJob *> list;
  for (auto &one : ofCores)
    list.push_back(&one.second);
  runSome(list);
  for (auto &[key, job] : ofCores)
    if (job.isDone)
      cores[key] = job.corePrice;
  list.clear();
  for (PlanJob &job : jobs)
    if (const CorePrice *core = this->core(job.core); !problem.composes() || (core && core->isLegal))
      list.push_back(&job);
  runSome(list);
  std::vector<std::optional<PlanTrial>> trials;
  for (const PlanJob &job : jobs)
    trials.push_back(job.composed.trial.isLegal ? std::optional(job.composed.trial) : std::nullopt);
  return trials;
}
