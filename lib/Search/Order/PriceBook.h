//===- PriceBook.h - What is known of prices ----------------------------------------------------===//
#ifndef PC_LIB_SEARCH_ORDER_PRICEBOOK_H
#define PC_LIB_SEARCH_ORDER_PRICEBOOK_H

#include "PlanJobs.h"
#include "PlanTree.h"

namespace pc {

/// Keeps the prices of cores, tasks and plans, and has workers compile the missing ones.
///
/// Input: jobs, and plans to price. Result: prices by the key of a core or of tasks, and by the node of a plan; cores
/// that bound others are also told to the bounds. Invariant: a price that is known is never asked for again.
class PriceBook {
public:
  /// Workers compile while `goesOn`, which several threads ask, says so.
  PriceBook(const SearchProblem &problem, PlanTree &tree, PlanBounds &bounds, llvm::function_ref<bool()> goesOn);

  const CorePrice *core(const PlanCore &core) const { return find(cores, core.key()); }
  /// By the key of the tasks' core and the way of their gradients; `tasksKey` of OpenPlans.
  const TaskPrice *tasksOf(const std::string &key) const { return find(tasks, key); }
  /// Prices the layers on one rank, for each choice of the work that all ranks do by themselves: no plan costs less.
  void learnOneRank();
  /// Does jobs, by key, and records what they say of cores and tasks.
  void run(std::map<std::string, PlanJob> &jobs);

  /// Whether the plan's ranks cannot split layers as it does. Known only if plans are compiled whole.
  bool isRefused(const Plan &plan) const;
  /// Looks whether a plan was refused for the way in which it splits layers; how many programs that took.
  int noteRefused(const Plan &plan);
  /// Records the price of a node's plan.
  void setTrial(size_t id, const ComposedPlan &priced);
  /// What the plan of a node takes, from its whole compile if there was one.
  PlanTrial trialOf(size_t id) const;
  /// Compiles a plan whole, once, which may change its price; false if it is refused, or interrupted.
  bool compileWhole(FoundPlan &plan);
  /// Begins to compile the best composed plan whole, during the search, if it will probably stay the best: no plan that
  /// is left costs less than `bound`.
  void compileAhead(const FoundPlan &best, double bound);
  bool isWhole(size_t id) const { return whole.count(id); }
  int64_t numWhole() const { return std::ssize(whole); }
  int64_t numTrials() const { return std::ssize(trials); }
  int64_t numRefused() const;
  /// Prices plans that are no nodes. Nothing for plans that are not legal, or if the search was ended before.
  std::vector<std::optional<PlanTrial>> priceAll(llvm::ArrayRef<Plan> plans);

  std::optional<PlanWorkers> workers;
  const llvm::function_ref<bool()> goesOn;

private:
  template <typename Price>
  static const Price *find(const std::map<std::string, Price> &prices, const std::string &key) {
    auto it = prices.find(key);
    return it == prices.end() ? nullptr : &it->second;
  }
  void run(llvm::MutableArrayRef<PlanJob *> jobs) { workers->run(jobs, problem.composes() ? &cores : nullptr); }

  const SearchProblem &problem;
  PlanTree &tree;
  PlanBounds &bounds;
  std::map<std::string, CorePrice> cores;           ///< by key
  std::map<std::string, TaskPrice> tasks;           ///< by key
  std::map<std::string, bool> refusedSplits;        ///< whether ranks cannot split layers so
  std::map<size_t, PlanTrial> trials;               ///< by node: prices as plans were opened
  std::map<size_t, std::optional<PlanTrial>> whole; ///< by node: prices of plans compiled whole; nothing: refused
  std::optional<size_t> leader;                     ///< the node that was best in the last round
  int roundsOfLeader = 0;                           ///< in which it was, and probably stays it
};

} // namespace pc

#endif
