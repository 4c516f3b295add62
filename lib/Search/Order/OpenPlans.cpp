//===- OpenPlans.cpp - The nodes of a search: sets of plans, and plans -------------------------===//
// A set is opened to its plans, with bounds by the core that they share; a plan to itself with better bounds, by its
// own core and by its tasks, and at last to what it takes.
//===-----------------------------------------------------------------------------===//
#include "PlanSearch.h"

using namespace mlir;
using namespace pc;

void PlanSearch::readSets() {
  sets = space.sets(unlike);
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
  int64_t ranks = 1;
  return plan ? std::optional(PlanCore::of(withoutInnerData(*plan, ranks), batch, true)) : std::nullopt;
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
  if (auto recompute = plan.find<RecomputeTactic>())
    known.level = recompute->isFull() ? 2 : 1;
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
        int64_t parts = count * static_cast<int64_t>(plan.data) * plan.sequenceRanks;
        bool divides = !hasSequences || batch % parts == 0;
        isUneven |= !divides;
        if (!divides || plan.shape.stages * plan.shape.chunks > mostChunks)
          continue;
        ++numPlans;
        if (limit() > 0 && bounds->leastBytes(plan) > static_cast<double>(limit()))
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
        PlanNode &root =
            roots.emplace_back(nodeOf(std::move(node), leastBytes ? bounds->leastBytes(plan) : bounds->ofShape(plan)));
        if (leastBytes) { // those with less at once, that keep less of it
          root.atOnce = -root.atOnce;
          root.level = -root.level;
        }
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
      if (plan.hasStages && !few->hasOneChain()) // compiled whole
        return;
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
  auto bySeconds = [](const Guess &a, const Guess &b) {
    return std::tie(a.isLarge, a.seconds, a.node.set, a.node.sizes) <
           std::tie(b.isLarge, b.seconds, b.node.set, b.node.sizes);
  };
  llvm::sort(guesses, bySeconds);
  // Those with as many stages and data ranks are nearly the same: others come in between.
  constexpr double later = 0.03;
  std::map<std::pair<int64_t, double>, double> before;
  for (Guess &guess : guesses) {
    const PlanNumbers &plan = numbersOf(guess.node);
    guess.seconds *= 1 + later * before[{plan.shape.stages, plan.data}]++;
  }
  llvm::sort(guesses, bySeconds);
  constexpr size_t atOnce = 8, turns = 8;
  for (auto [i, guess] : llvm::enumerate(guesses)) {
    if (i == atOnce * turns)
      break;
    guess.node.hasBare = guess.node.hasData = true;
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

PlanCore PlanSearch::coreOf(const Node &node, const Plan &plan) {
  return PlanCore::of(plan, batch, false, !isPlain(node));
}

int64_t PlanSearch::atOnce(const Node &node) {
  return batch / (node.microbatches * static_cast<int64_t>(numbersOf(node).data));
}

std::string PlanSearch::tasksKey(const PlanNode &node, const PlanCore &core) {
  const PlanNumbers &plan = numbersOf(nodes[node.id]);
  if (!composes || leastBytes || !plan.schedule || !options.train || !few->hasOneChain())
    return "";
  return (plan.schedule->split ? "tasks with gradients of weights apart: " : "tasks: ") + core.key();
}

double PlanSearch::boundByOthers(const Node &node, const Plan &plan) {
  PlanNumbers &numbers = numbersOf(node);
  int64_t ranks = 1;
  PlanCore core = PlanCore::of(withoutInnerData(plan, ranks), batch, true);
  if (atOnce(node) % ranks)
    return 0;
  // Cores have two, but what grids send depends on how much there is at once.
  core.plan.microbatches = plan.splitsEmbed() ? 1 : std::min<int64_t>(node.microbatches, 2);
  core.batch = atOnce(node) / ranks * core.plan.microbatches;
  // What is made again, and what hides behind what, is not the same in all of them.
  constexpr double margin = 0.98;
  return margin * bounds->ofSet(bounds->known(core), numbers, std::numeric_limits<double>::infinity());
}

void PlanSearch::boundByTasks(ArrayRef<PlanNode> asked) {
  struct Asked {
    const TaskPrice *tasks;
    const CorePrice *core;
    PlanNumbers numbers;
    PlanBounds::TaskBound *bound;
  };
  std::vector<Asked> list;
  taskBounds.clear();
  for (const PlanNode &node : asked) {
    const Node &known = nodes[node.id];
    std::optional<Plan> plan = known.family && known.hasCore && !known.hasTasks ? planOf(known) : std::nullopt;
    if (!plan)
      continue;
    PlanCore core = coreOf(known, *plan);
    auto it = tasks.find(tasksKey(node, core));
    if (it == tasks.end() || !it->second.isLegal)
      continue;
    list.push_back({&it->second, &cores.at(core.key()), numbersOf(known), &taskBounds[node.id]});
    bounds->prepare(list.back().numbers);
  }
  workers->each(list.size(), [&](size_t i) {
    const Asked &one = list[i];
    *one.bound = bounds->ofTasks(*one.tasks, *one.core, one.numbers);
  });
}

/// How a plan's ranks split layers, and nothing else of it.
static PlanCore splitOf(const Plan &plan, int64_t batch) {
  PlanCore split = PlanCore::of(plan, batch, true);
  llvm::erase_if(split.plan.tactics, [](const Tactic &tactic) {
    const TacticInfo *row = tactic.info();
    return row && row->fromFlags && tactic.list("axis").empty() && tactic.list("axes").empty();
  });
  return split;
}

int PlanSearch::noteRefused(const Plan &plan) {
  PlanCore split = splitOf(plan, batch);
  auto [it, isNew] = refusedSplits.try_emplace(split.key(), false);
  if (!isNew || split.plan.mesh.empty())
    return 0;
  PlanJob job{split.key(), split, split.plan};
  PlanJob *jobs[] = {&job};
  workers->run(jobs, nullptr);
  it->second = job.isDone && !job.composed.trial.isLegal;
  return 1;
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
  if (auto it = refusedSplits.find(composes ? "" : splitOf(*plan, batch).key());
      it != refusedSplits.end() && it->second) {
    raised[node.id] = std::numeric_limits<double>::infinity();
    return std::nullopt;
  }
  PlanCore core = coreOf(known, *plan);
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
  if (std::optional<PlanCore> bare = bareOf(known, *plan))
    return cores.count(bare->key()) ? std::nullopt : std::optional(PlanJob{bare->key(), *bare, std::nullopt});
  return PlanJob{core.key(), core, std::nullopt};
}

std::optional<PlanCore> PlanSearch::bareOf(const Node &node, const Plan &plan) const {
  if (!composes || leastBytes || node.hasBare)
    return std::nullopt;
  for (PlanCore &bare : PlanCore::bareOf(plan, batch))
    if (auto it = cores.find(bare.key()); it == cores.end() || it->second.isLegal)
      return std::move(bare);
  return std::nullopt;
}

OpenedNode PlanSearch::openBare(const PlanNode &node, const Plan &plan) {
  OpenedNode opened;
  Node &known = nodes[node.id];
  double bound = node.bound;
  // What was not legal is left out next time.
  std::optional<PlanCore> bare = bareOf(known, plan);
  auto it = bare ? cores.find(bare->key()) : cores.end();
  known.hasBare = it != cores.end();
  if (known.hasBare) {
    const CorePrice &price = it->second;
    const PlanNumbers &numbers = numbersOf(known);
    if (limit() > 0 && bounds->leastBytes(numbers, price) > static_cast<double>(limit())) {
      ++numDropped;
      return opened;
    }
    bound = std::max(bound, bounds->ofCore(price, numbers));
  }
  opened.inside.push_back(node);
  opened.inside[0].bound = bound;
  return opened;
}

/// Opens a set: returns its plans with their bounds, or the set again with a better bound.
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
  int64_t plans = numPlans, dropped = numDropped;
  double later = std::numeric_limits<double>::infinity(), most = enough();
  forPlansOf(set.set, set.sizes, [&](size_t family, const PlanNumbers &plan) {
    double bound = std::max(bounds->ofSet(known, plan, most), node.bound);
    if (bound >= most) {
      later = std::min(later, bound);
      return;
    }
    PlanNode inside = nodeOf({set.set, family, plan.sizes, plan.microbatches}, bound);
    if (!triedTexts.count(inside.text) && inHeap.insert(inside.text).second)
      opened.inside.push_back(std::move(inside));
  });
  if (!openedSets.insert(node.id).second)
    numPlans = plans, numDropped = dropped;
  if (!std::isinf(later)) { // where the best plan turns out not to fit
    opened.inside.push_back(node);
    opened.inside.back().bound = later;
  }
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
  PlanCore core = coreOf(known, *plan);
  std::string key = tasksKey(node, core);
  auto next = [&](double bound) { // with that of its data ranks, where this was what it shares with ZeRO-1
    if (isPlain(known) && (known.hasTasks || key.empty())) {
      known.hasData = true;
      known.hasCore = known.hasTasks = false;
    }
    opened.inside.push_back(node);
    opened.inside[0].bound = bound;
  };
  if (!known.hasCore && !cores.count(core.key()))
    return openBare(node, *plan);
  if (!known.hasCore) {
    const CorePrice &price = cores.at(core.key());
    if (!price.isLegal)
      return opened;
    PlanNumbers &plan = numbersOf(known);
    if (limit() > 0 && bounds->leastBytes(plan, price) > static_cast<double>(limit())) {
      ++numDropped;
      return opened;
    }
    known.hasCore = true;
    next(leastBytes ? bounds->leastBytes(plan, price) : bounds->ofCore(price, plan));
    return opened;
  }
  if (!key.empty() && !known.hasTasks) {
    const TaskPrice &price = tasks.at(key);
    PlanBounds::TaskBound bound{node.bound, 0};
    if (price.isLegal)
      bound = taskBounds.at(node.id);
    if (limit() > 0 && bound.bytes > static_cast<double>(limit())) {
      ++numDropped;
      return opened;
    }
    known.hasTasks = true;
    next(bound.seconds);
    return opened;
  }
  const PlanJob &job = jobs.at("plan " + node.text);
  trials[node.id] = job.composed.trial;
  opened.trial = wanted(job.composed.trial);
  if (composes && !job.composed.isComposed)
    whole.emplace(node.id, opened.trial->isLegal ? std::optional(job.composed.trial) : std::nullopt);
  tried.insert_or_assign(node.id, job.composed.plan);
  triedTexts.insert(node.text);
  const PlanTrial &trial = *opened.trial;
  if (trial.isLegal && (limit() == 0 || trial.bytes <= limit()))
    best = std::min(best, (fitting[node.id] = {node, trial}).trial.seconds);
  if (!trial.isLegal && !composes)
    opened.compositions = noteRefused(*plan);
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
  // Those that take longest come first, so that threads end together.
  llvm::sort(list, [](const PlanJob *a, const PlanJob *b) {
    auto turn = [](const PlanJob &job) { return std::tuple(!job.plan, job.ofTasks, StringRef(job.key)); };
    return turn(*a) < turn(*b);
  });
  workers->run(list, composes ? &cores : nullptr);
  for (auto &[key, job] : jobs)
    if (!job.isDone)
      continue;
    else if (job.ofTasks)
      tasks[key] = job.taskPrice;
    else if (job.any)
      bounds->learn(job.core, job.corePrice);
    else if (!job.plan) {
      cores[key] = job.corePrice;
      if (job.core.batch > 0 && !PlanNumbers(job.core.plan, model.getContext()).hasData())
        bounds->learn(job.core, job.corePrice);
    }
  boundByTasks(asked);
  std::vector<OpenedNode> opened;
  std::set<std::string> counted;
  for (auto [node, key] : llvm::zip_equal(asked, keys)) {
    if (!key.empty() && !jobs.at(key).isDone) { // it is left
      opened.emplace_back().inside.push_back(node);
      continue;
    }
    opened.push_back(openNow(node, jobs));
    if (!key.empty() && counted.insert(key).second)
      opened.back().compositions += jobs.at(key).compositions();
    compositions += opened.back().compositions;
    if (!key.empty() && refusal.empty())
      refusal = jobs.at(key).refusal;
  }
  if (!asked.empty()) {
    beginWhole(asked.front().bound);
    noteSoFar(asked.front().probe ? 0 : asked.front().bound);
  }
  return opened;
}
