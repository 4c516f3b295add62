//===- OpenPlans.cpp - Opens sets of plans, and plans -------------------------------------------===//
// A round has three parts: it finds the programs that its nodes need, compiles them on all threads, and opens the nodes
// in order. So results do not depend on the number of threads.
//===--------------------------------------------------------------------------------------------===//
#include "OpenPlans.h"
#include "../Bound/Margins.h"

using namespace mlir;
using namespace pc;

static constexpr double infinite = std::numeric_limits<double>::infinity();

OpenedNode OpenPlans::again(const PlanNode &node, double bound) {
  OpenedNode opened;
  opened.inside.push_back(node);
  opened.inside[0].bound = bound;
  return opened;
}

//===---------------------------------------------------------------------------===//
// The next bound of a plan
//===---------------------------------------------------------------------------===//

/// Plans of ZeRO-2 and 3 begin with the core and tasks that they share with ZeRO-1 (`isShared`), because these are
/// often known already. Returns std::nullopt if the sizes are not possible.
std::optional<OpenPlans::Next> OpenPlans::nextOf(const PlanEntry &entry) const {
  std::optional<Plan> plan = tree.planOf(entry);
  if (!plan)
    return std::nullopt;
  PlanNumbers numbers = tree.numbersOf(entry);
  bool isShared = problem.boundsByCores() && !entry.hasData && numbers.zero >= 2;
  PlanCore core = PlanCore::of(*plan, problem.batch, false, !isShared);
  std::string key;
  if (problem.boundsByCores() && numbers.schedule && problem.options.train && problem.few->hasOneChain())
    key = (numbers.schedule->split ? "tasks with gradients of weights apart: " : "tasks: ") + core.key();
  return Next{std::move(*plan), std::move(numbers), std::move(core), std::move(key), isShared};
}

/// Returns the first bare core that is not known to be illegal; std::nullopt if the plan has already used its bare
/// core.
std::optional<PlanCore> OpenPlans::bareOf(const PlanEntry &entry, const Plan &plan) const {
  if (!problem.boundsByCores() || entry.hasBare)
    return std::nullopt;
  for (PlanCore &bare : PlanCore::bareOf(plan, problem.batch))
    if (const CorePrice *price = prices.core(bare); !price || price->isLegal)
      return std::move(bare);
  return std::nullopt;
}

bool OpenPlans::callsTasks(const PlanEntry &entry) const {
  std::optional<Next> next = nextOf(entry);
  const TaskPrice *tasks = next ? prices.tasksOf(next->tasksKey) : nullptr;
  return tasks && bounds.callsTasks(*tasks, next->numbers);
}

double OpenPlans::boundByOthers(const PlanEntry &entry, const Next &next) const {
  int64_t ranks = 1, atOnce = tree.atOnce(next.numbers);
  PlanCore core = PlanCore::of(withoutInnerData(next.plan, ranks), problem.batch, true);
  if (atOnce % ranks)
    return 0;
  // Cores have two microbatches, except in grids, where the size of a microbatch decides which operand is sent.
  core.plan.microbatches = next.plan.splitsEmbed() ? 1 : std::min<int64_t>(entry.microbatches, 2);
  core.batch = atOnce / ranks * core.plan.microbatches;
  return margins::otherCore * bounds.ofSet(bounds.known(core), next.numbers, infinite);
}

/// Collects the nodes of the round whose tasks have prices, and simulates their orders on all threads.
void OpenPlans::boundByTasks(ArrayRef<PlanNode> nodes) {
  struct Asked {
    const TaskPrice *tasks;
    const CorePrice *core;
    PlanNumbers numbers;
    PlanBounds::TaskBound *bound;
  };
  std::vector<Asked> list;
  for (const PlanNode &node : nodes) {
    if (tree.isSet(node.id) || !tree.entryOf(node.id).hasCore || tree.entryOf(node.id).hasTasks)
      continue;
    std::optional<Next> next = nextOf(tree.entryOf(node.id));
    const TaskPrice *tasks = next ? prices.tasksOf(next->tasksKey) : nullptr;
    if (!tasks || !tasks->isLegal)
      continue;
    list.push_back({tasks, prices.core(next->core), std::move(next->numbers), &round.ofTasks[node.id]});
    bounds.prepare(list.back().numbers);
  }
  prices.workers->each(list.size(), [&](size_t i) {
    const Asked &one = list[i];
    *one.bound = bounds.ofTasks(*one.tasks, *one.core, one.numbers);
  });
}

//===---------------------------------------------------------------------------===//
// Compiling the programs of a round
//===---------------------------------------------------------------------------===//

/// A set needs its core. A plan needs, in this order, its bare core, its core, its tasks, and then its whole price.
/// Nothing is compiled if a known bound already exceeds the node's bound.
std::optional<PlanJob> OpenPlans::jobOf(const PlanNode &node) {
  if (tree.isSet(node.id)) {
    const std::optional<PlanCore> &core = tree.setOf(node.id).core;
    if (!core || bounds.knows(*core) || bounds.ofSet(bounds.known(*core)) > node.bound)
      return std::nullopt;
    return PlanJob{"any " + core->key(), *core, std::nullopt, /*any=*/true};
  }
  const PlanEntry &entry = tree.entryOf(node.id);
  std::optional<Next> next = nextOf(entry);
  if (!next)
    return std::nullopt;
  if (prices.isRefused(next->plan)) {
    round.raised[node.id] = infinite;
    return std::nullopt;
  }
  if (entry.hasCore) {
    const TaskPrice *tasks = prices.tasksOf(next->tasksKey);
    PlanJob job{"plan " + node.text, next->core, std::move(next->plan)};
    job.callsTasks = tasks && bounds.callsTasks(*tasks, next->numbers);
    if (next->tasksKey.empty() || entry.hasTasks)
      return job;
    if (tasks)
      return std::nullopt;
    job.key = next->tasksKey;
    job.ofTasks = true;
    return job;
  }
  if (prices.core(next->core))
    return std::nullopt;
  // Probes are priced in any case, because the search needs some prices to begin with.
  if (double bound = boundByOthers(entry, *next); !node.probe && bound > node.bound * (1 + 1e-9)) {
    round.raised[node.id] = bound;
    return std::nullopt;
  }
  if (std::optional<PlanCore> bare = bareOf(entry, next->plan))
    return prices.core(*bare) ? std::nullopt : std::optional(PlanJob{bare->key(), *bare, std::nullopt});
  return PlanJob{next->core.key(), next->core, std::nullopt};
}

/// Nodes often need the same job, so jobs have keys, and each job runs only once.
void OpenPlans::prepare(ArrayRef<PlanNode> nodes) {
  round = {};
  for (const PlanNode &node : nodes)
    if (std::optional<PlanJob> job = jobOf(node)) {
      round.keys[node.id] = job->key;
      round.jobs.try_emplace(job->key, std::move(*job));
    }
  prices.run(round.jobs);
  boundByTasks(nodes);
}

//===---------------------------------------------------------------------------===//
// Opening a node
//===---------------------------------------------------------------------------===//

/// If the job of the node did not run because the search has to end, returns the node unchanged, so that its plans
/// count as remaining. The programs of a job count once, for the first node that needs the job.
OpenedNode OpenPlans::open(const PlanNode &node) {
  auto key = round.keys.find(node.id);
  const PlanJob *job = key == round.keys.end() ? nullptr : &round.jobs.at(key->second);
  if (job && !job->isDone) // the search has to end, so the node remains
    return again(node, node.bound);
  OpenedNode opened = openNow(node);
  if (job && round.counted.insert(key->second).second)
    opened.compositions += job->compositions();
  if (job && tree.refusal.empty())
    tree.refusal = job->refusal;
  return opened;
}

/// Opens a plan at its next stage: bare core, core, tasks, or price. If other prices have raised its bound since the
/// node was added, returns the node with the raised bound instead.
OpenedNode OpenPlans::openNow(const PlanNode &node) {
  if (tree.isSet(node.id))
    return openSet(node);
  if (auto it = round.raised.find(node.id); it != round.raised.end())
    return std::isinf(it->second) ? OpenedNode() : again(node, it->second);
  const PlanEntry &entry = tree.entryOf(node.id);
  std::optional<Next> next = nextOf(entry);
  if (!next)
    return {};
  if (!entry.hasCore)
    return prices.core(next->core) ? openCore(node, *next) : openBare(node, *next);
  return next->tasksKey.empty() || entry.hasTasks ? openPrice(node, *next) : openTasks(node, *next);
}

/// Opens a set: returns its plans with their bounds, or the set again with a better bound.
OpenedNode OpenPlans::openSet(const PlanNode &node) {
  SetNode &set = tree.setOf(node.id);
  CoreBound known;
  if (set.core) {
    known = bounds.known(*set.core);
    double bound = bounds.ofSet(known);
    if (std::isinf(bound))
      return {};
    if (!bounds.knows(*set.core)) // a smaller split already gives a better bound
      return again(node, bound);
  }
  OpenedNode opened;
  // `later` is the lowest bound of plans that are left out.
  double later = infinite, most = incumbent.enough();
  // Plans whose bound exceeds `most` are not added now. The set stays in the heap with the lowest of their bounds.
  PlanCounts found = tree.forPlansOf(set.set, set.inner, [&](size_t family, const PlanNumbers &plan) {
    double bound = std::max(bounds.ofSet(known, plan, most), node.bound);
    if (bound >= most) {
      later = std::min(later, bound);
      return;
    }
    PlanNode inside = tree.add({set.set, family, plan.sizes, plan.microbatches}, plan, bound);
    if (tree.isNew(inside.text))
      opened.inside.push_back(std::move(inside));
  });
  if (!std::exchange(set.isCounted, true)) {
    tree.counts.plans += found.plans;
    tree.counts.dropped += found.dropped;
  }
  if (!std::isinf(later)) // in case the best plan does not fit
    llvm::append_range(opened.inside, again(node, later).inside);
  return opened;
}

/// Bounds a plan by its bare core. If the bare core has no price, returns the node unchanged; the plan's own core is
/// next.
OpenedNode OpenPlans::openBare(const PlanNode &node, const Next &next) {
  PlanEntry &entry = tree.entryOf(node.id);
  // Cores that were not legal are left out next time.
  std::optional<PlanCore> bare = bareOf(entry, next.plan);
  const CorePrice *price = bare ? prices.core(*bare) : nullptr;
  entry.hasBare = price;
  if (!price)
    return again(node, node.bound);
  if (isTooLarge(bounds.leastBytes(next.numbers, *price)))
    return dropped();
  return again(node, std::max(node.bound, bounds.ofCore(*price, next.numbers)));
}

/// Drops a plan whose core is not legal, or that needs too many bytes. Otherwise gives the plan the bound that follows
/// from its core.
OpenedNode OpenPlans::openCore(const PlanNode &node, const Next &next) {
  PlanEntry &entry = tree.entryOf(node.id);
  const CorePrice &price = *prices.core(next.core);
  if (!price.isLegal)
    return {};
  double bytes = bounds.leastBytes(next.numbers, price);
  if (isTooLarge(bytes))
    return dropped();
  entry.hasCore = true;
  if (next.isShared && next.tasksKey.empty()) { // continue with the core that has the plan's data ranks
    entry.hasData = true;
    entry.hasCore = false;
  }
  return again(node, problem.objective == Objective::Bytes ? bytes : bounds.ofCore(price, next.numbers));
}

/// Uses the bound that boundByTasks has simulated. A plan that shared the tasks of ZeRO-1 continues with its own core.
OpenedNode OpenPlans::openTasks(const PlanNode &node, const Next &next) {
  PlanEntry &entry = tree.entryOf(node.id);
  PlanBounds::TaskBound bound{node.bound, 0};
  if (prices.tasksOf(next.tasksKey)->isLegal)
    bound = round.ofTasks.at(node.id);
  if (isTooLarge(bound.bytes))
    return dropped();
  entry.hasTasks = true;
  if (next.isShared) {
    entry.hasData = true;
    entry.hasCore = entry.hasTasks = false;
  }
  return again(node, bound.seconds);
}

/// The job has composed or compiled the plan. If a plan that was compiled whole is refused, checks whether all plans
/// with the same split would also be refused.
OpenedNode OpenPlans::openPrice(const PlanNode &node, const Next &next) {
  const ComposedPlan &priced = round.jobs.at("plan " + node.text).composed;
  OpenedNode opened;
  opened.trial = priced.trial;
  prices.setTrial(node.id, priced);
  tree.setTried(node, priced.plan);
  if (!priced.trial.isLegal && !problem.composes())
    opened.compositions = prices.noteRefused(next.plan);
  return opened;
}
