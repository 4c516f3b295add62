//===- PlanSearch.h - A search, and what it knows by now ---------------------------------------===//
#ifndef PC_LIB_SEARCH_ORDER_PLANSEARCH_H
#define PC_LIB_SEARCH_ORDER_PLANSEARCH_H

#include "../Bound/PlanBounds.h"
#include "../Report/BlamePins.h"
#include "../Report/FoundPlans.h"
#include "../Space/PlanSpace.h"
#include "PlanJobs.h"

#include "pc/Search/CompletePlan.h"
#include "pc/Shard/KnownDims.h"
#include <limits>
#include <mutex>
#include <set>

namespace pc {

/// A composed plan is good enough where none can be better by more than this share: composed seconds are right to half
/// of it.
constexpr double composedError = 0.015;
/// Compiled whole, the plan is accepted if no plan can be better by more than this share of its seconds.
constexpr double acceptedGap = 0.02;
/// But as long as a search has compiled no more programs than these, it goes on until none can be better at all.
constexpr int64_t cheapCompositions = 400;

/// What a search found.
struct PlanAnswer {
  Plan plan;
  std::string said; ///< for standard error
  llvm::json::Object report;
};

class PlanSearch {
public:
  PlanSearch(mlir::ModuleOp model, const CompileOptions &options, const MachineModel &machine)
      : model(model), options(options), search(options.search), machine(machine), batch(batchOf(model)),
        hasSequences(pc::hasSequences(model)),
        space(search, batch, hasKnownDims(model), hasExperts(model), mixesSequences(model)) {}

  /// Searches while `goesOn`, which several threads ask, says so. Errors are emitted.
  pcrt_status run(PlanAnswer &answer, llvm::function_ref<bool()> goesOn);
  /// The best plan by now; another thread may ask while the search runs.
  std::optional<PlanAnswer> soFar() const;
  /// The plan that takes the least memory, or with a limit the first one that does not exceed it.
  std::optional<SmallPlan> smallest(llvm::function_ref<bool()> goesOn);
  /// Programs that are compiled, at most.
  int64_t mostCompositions() const;

private:
  pcrt_status fail(pcrt_status status, const llvm::Twine &message) {
    model.emitError() << message;
    return status;
  }
  /// The flags that were given, or nothing.
  std::string given() const;
  /// Why the first refused plan was refused, or nothing.
  std::string firstRefusal() const;
  pcrt_status failIllegal(const std::string &text);
  /// A set of plans with the sizes of its layers' axes, or a plan.
  struct Node {
    size_t set;
    std::optional<size_t> family;
    AxisSizes sizes;
    int64_t microbatches = 1;
    bool hasCore = false;  ///< its bound is the bound of its core
    bool hasTasks = false; ///< its bound is the bound of its tasks
    bool hasData = false;  ///< the core has the plan's own data ranks, and is not the core of ZeRO-1
    bool hasBare = false;  ///< its bound is the bound of its bare core
  };
  /// Reads the space, and what the model does.
  pcrt_status read();
  /// Searches while `goesOn` says so; then plans are compiled whole, while `compiles` does.
  SearchResult searchAll(llvm::function_ref<bool()> goesOn, llvm::function_ref<bool()> compiles);
  std::optional<SmallPlan> smallestOf(const SearchResult &result, llvm::function_ref<bool()> goesOn);
  std::string whyNone(const std::optional<SmallPlan> &least, llvm::function_ref<bool()> goesOn);
  CompileOptions optionsOf(const AutoOptions &pins, int64_t most) const;
  std::optional<SmallPlan> fastestOf(const AutoOptions &pins, int64_t most, llvm::function_ref<bool()> goesOn);
  std::optional<SmallPlan> smallestOf(const AutoOptions &pins, int64_t most, llvm::function_ref<bool()> goesOn);
  void readSets();
  void learnRoots();
  /// A set's core, where the axes that split its layers have these sizes.
  std::optional<PlanCore> coreOf(const PlanSet &set, llvm::ArrayRef<int64_t> inner) const;
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
  void forPlansOf(size_t set, llvm::ArrayRef<int64_t> inner,
                  llvm::function_ref<void(size_t family, const PlanNumbers &numbers)> use);
  PlanNumbers &numbersOf(const Node &node);
  /// The core that bounds a plan next. A plan of ZeRO-2 or 3 is first bounded by the core that it shares with ZeRO-1.
  PlanCore coreOf(const Node &node, const Plan &plan);
  bool isPlain(const Node &node) { return composes && !leastBytes && !node.hasData && numbersOf(node).zero >= 2; }
  /// The bare core that bounds a plan, and many others with it, before that.
  std::optional<PlanCore> bareOf(const Node &node, const Plan &plan) const;
  OpenedNode openBare(const PlanNode &node, const Plan &plan);
  /// A key that is equal for plans that share the prices of tasks; empty: the plan's tasks are not priced apart.
  std::string tasksKey(const PlanNode &node, const PlanCore &core);
  /// Finds `taskBounds` of those nodes whose tasks are priced.
  void boundByTasks(llvm::ArrayRef<PlanNode> nodes);
  /// The sequences that a plan's data ranks have of a microbatch.
  int64_t atOnce(const Node &node);
  /// The bound of a plan by the cores of other plans.
  double boundByOthers(const Node &node, const Plan &plan);
  /// What no plan needs to be below to be left out.
  double enough() const {
    double settled = best * (1 - (composes && compositions >= settleAfter() ? composedError : 0));
    return confirmed.composed == best ? std::max(settled, (1 - acceptedGap) * confirmed.whole) : settled;
  }
  int64_t settleAfter() const { return leastBytes ? 0 : cheapCompositions; }
  std::vector<OpenedNode> open(llvm::ArrayRef<PlanNode> nodes);
  /// What has to be compiled before a node can be opened; nothing if all is known.
  std::optional<PlanJob> jobOf(const PlanNode &node);
  OpenedNode openNow(const PlanNode &node, std::map<std::string, PlanJob> &jobs);
  OpenedNode openSet(const PlanNode &node);
  /// Looks whether a plan was refused for the way in which it splits layers; how many programs that took.
  int noteRefused(const Plan &plan);
  /// Compiles a composed plan whole, once, which changes what it takes; false where it is refused, or interrupted.
  bool compileWhole(FoundPlan &plan, llvm::function_ref<bool()> goesOn);
  /// Begins to compile the best composed plan whole, beside the search, when it will probably stay that: no plan that
  /// is left takes less than `bound` seconds.
  void beginWhole(double bound);
  /// Records the present state for `soFar`; no plan that is left takes less than `bound` seconds.
  void noteSoFar(double bound);
  PlanAnswer answerOf(const Plan &plan, const FoundPlans &found) const;
  /// Whether the best composed plan fits.
  bool confirm(FoundPlan &plan, llvm::function_ref<bool()> goesOn);
  void compileFinalists(SearchResult &result, llvm::function_ref<bool()> goesOn);
  void mixLayers(SearchResult &result, llvm::function_ref<bool()> goesOn);
  /// Composed where plans are composed; nothing of those that are not legal, or where `goesOn` said no before.
  std::vector<std::optional<PlanTrial>> priceAll(llvm::ArrayRef<Plan> plans, llvm::function_ref<bool()> goesOn);
  /// What limits the best plan that was found, and what would change the choice; that is not known of one that a search
  /// of bytes has found.
  std::optional<WhatLimits> whatLimits(const SearchResult &result, bool isOfBytes, llvm::function_ref<bool()> goesOn);
  void addGuesses(llvm::ArrayRef<OtherMachine> machines, std::vector<FoundPlan> &fitting,
                  llvm::function_ref<bool()> goesOn);
  std::optional<FoundPlan> recomputed(const FoundPlan &found, llvm::StringRef mode, llvm::function_ref<bool()> goesOn);
  int64_t limit() const;
  /// As the search compares it.
  PlanTrial wanted(PlanTrial trial) const {
    trial.seconds = leastBytes ? static_cast<double>(trial.bytes) : trial.seconds;
    return trial;
  }
  /// What the plan of a node takes, by its whole compile where there was one.
  PlanTrial trialOf(size_t node) const {
    auto it = whole.find(node);
    return it != whole.end() && it->second ? *it->second : trials.at(node);
  }
  FoundPlans found(const SearchResult &result) const;

  mlir::ModuleOp model;
  const CompileOptions &options;
  const AutoOptions &search;
  const MachineModel &machine;
  int64_t batch;
  bool hasSequences;
  int64_t mostChunks = 1; ///< that a pipeline may have, in all stages together
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
  std::map<std::string, bool> refusedSplits;          ///< by key of `splitOf`: whether ranks cannot split layers so
  std::map<std::string, CorePrice> cores;             ///< by key
  std::map<std::string, TaskPrice> tasks;             ///< by `tasksKey`
  std::map<size_t, PlanBounds::TaskBound> taskBounds; ///< by node that is being opened
  StepWork work;
  std::optional<FewLayers> few;
  std::optional<PlanBounds> bounds;
  double best = std::numeric_limits<double>::infinity(); ///< seconds of the best plan that fits
  struct {
    double composed = 0, whole = 0;
  } confirmed;                                      ///< seconds of the plan that was compiled whole last, and fits
  std::map<size_t, FoundPlan> fitting;              ///< plans that fit, by node
  std::optional<size_t> leader;                     ///< of these the fastest
  int64_t confirmations = 0;                        ///< plans that were to be compiled whole, or had been
  int roundsOfLeader = 0;                           ///< in which it was that, and probably stays it
  std::set<size_t> openedSets;                      ///< whose plans are counted
  std::set<std::string> inHeap;                     ///< plans that sets were opened to
  std::map<size_t, PlanTrial> trials;               ///< by node: what plans took when they were priced
  std::map<size_t, std::optional<PlanTrial>> whole; ///< of plans that were compiled whole; none: refused
  int64_t numPlans = 0, numDropped = 0, compiled = 0;
  int64_t compositions = 0; ///< programs that were compiled to open nodes
  double gap = 0;
  bool isEstimate = false; ///< the chosen plan was composed, and not compiled whole
  std::optional<WhatLimits> limits;
  double leastLeft = 0; ///< seconds below which no plan stays that is not known
  mutable std::mutex mutex;
  std::optional<PlanAnswer> known; ///< by now; of `mutex`
  std::string refusal;             ///< why the first plan that is not legal is not
  bool isUneven = false;           ///< ranks and microbatches of a plan do not divide the sequences of a step
  std::string unlike;              ///< why the first flags that do not go together do not
};

} // namespace pc

#endif
