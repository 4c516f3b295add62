//===- PriceBook.h - Keeps prices and requests missing ones -------------------------------------===//
#ifndef PC_LIB_SEARCH_ORDER_PRICEBOOK_H
#define PC_LIB_SEARCH_ORDER_PRICEBOOK_H

#include "PlanJobs.h"
#include "PlanTree.h"

namespace pc {

/// Keeps the prices of cores, tasks and plans, and lets workers compile the missing ones.
///
/// Input: jobs, and plans to price. Result: prices by the key of a core or of tasks, and by the node of a plan. The
/// prices of cores that bound other plans are also reported to PlanBounds. Invariant: a known price is never computed
/// again.
class PriceBook {
public:
  /// Workers compile while `goesOn`, which several threads call, returns true.
  PriceBook(const SearchProblem &problem, PlanTree &tree, PlanBounds &bounds, llvm::function_ref<bool()> goesOn);

  const CorePrice *core(const PlanCore &core) const { return find(cores, core.key()); }
  /// Returns the price of tasks. The key (`tasksKey` of OpenPlans) states their core and how gradients are handled.
  const TaskPrice *tasksOf(const std::string &key) const { return find(tasks, key); }
  /// Prices the layers on one rank, for each combination of the work that every rank repeats. No plan costs less.
  void learnOneRank();
  /// Runs jobs, by key, and records the prices of cores and tasks.
  void run(std::map<std::string, PlanJob> &jobs);

  /// Whether it is known that the plan's ranks cannot split layers as the plan says. This is known only if plans are
  /// compiled whole.
  bool isRefused(const Plan &plan) const;
  /// Finds out whether a plan was refused because of the way in which it splits layers. Returns the number of programs
  /// that were compiled.
  int noteRefused(const Plan &plan);
  /// Records the price of the plan of node `id`.
  void setTrial(size_t id, const ComposedPlan &priced);
  /// Returns the seconds and bytes of the plan of node `id`. They are from its whole compile if there was one.
  PlanTrial trialOf(size_t id) const;
  /// Compiles a plan whole, at most once, and updates its price. Returns false if the plan is refused or the search is
  /// interrupted.
  bool compileWhole(FoundPlan &plan);
  /// Begins, during the search, to compile the best composed plan whole if it will probably stay the best. `bound` is a
  /// lower bound on the cost of the remaining plans.
  void compileAhead(const FoundPlan &best, double bound);
  bool isWhole(size_t id) const { return whole.count(id); }
  int64_t numWhole() const { return std::ssize(whole); }
  int64_t numTrials() const { return std::ssize(trials); }
  int64_t numRefused() const;
  /// Prices plans that are not nodes. A plan has no price if it is not legal, or if the search ended before it was
  /// priced.
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
  std::map<std::string, bool> refusedSplits;        ///< true: ranks cannot split layers in this way
  std::map<size_t, PlanTrial> trials;               ///< for each node, the price when its plan was opened
  std::map<size_t, std::optional<PlanTrial>> whole; ///< for each node, the price of the whole compile; null: refused
  std::optional<size_t> leader;                     ///< the node that was best in the last round
  int roundsOfLeader = 0;                           ///< rounds in which it was the best, and likely to stay so
};

} // namespace pc

#endif
