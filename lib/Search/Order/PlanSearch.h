//===- PlanSearch.h - Searches a plan and reports the result ------------------------------------===//
#ifndef PC_LIB_SEARCH_ORDER_PLANSEARCH_H
#define PC_LIB_SEARCH_ORDER_PLANSEARCH_H

#include "../Report/BlamePins.h"
#include "../Report/FoundPlans.h"
#include "OpenPlans.h"

#include <mutex>

namespace pc {

/// The result of a search.
struct PlanAnswer {
  Plan plan;
  std::string said; ///< the text for standard error
  llvm::json::Object report;
};

/// Runs one search from its flags to its answer.
///
/// Input: a model, flags, a machine and an objective. Result: a plan with its report, or an error. The parts of a
/// search do the work: PlanTree has the nodes, PriceBook has the prices, OpenPlans opens nodes, and Incumbent decides
/// when to stop. Invariant: a plan that is not marked as an estimate was compiled whole, and fits.
class PlanSearch : NodeOpener {
public:
  PlanSearch(mlir::ModuleOp model, const CompileOptions &options, const MachineModel &machine,
             Objective objective = Objective::Seconds)
      : problem(model, options, machine, objective) {}

  /// Searches while `goesOn`, which several threads call, returns true. Emits errors.
  pcrt_status run(PlanAnswer &answer, llvm::function_ref<bool()> goesOn);
  /// The best plan so far. Another thread may call this while the search runs.
  std::optional<PlanAnswer> soFar() const;
  int64_t mostCompositions() const { return problem.mostCompositions(); }

private:
  void prepare(llvm::ArrayRef<PlanNode> nodes) override { opener->prepare(nodes); }
  OpenedNode open(const PlanNode &node) override { return opener->open(node); }
  void endRound(const PlanNode &first) override;
  bool confirm(FoundPlan &plan) override;

  /// Reads the request, and creates the parts. Emits errors.
  pcrt_status begin(llvm::function_ref<bool()> goesOn);
  /// Searches while `goesOn` returns true; then compiles plans whole.
  SearchResult searchAll(llvm::function_ref<bool()> goesOn);
  /// If the fastest plans that fit are plans whose layers differ in recomputation, adds them to `result`.
  void mixLayers(SearchResult &result);
  /// Runs a separate search for the best plan. If the search minimizes bytes and there is a limit, it stops at the
  /// first plan that does not exceed the limit.
  std::optional<SmallPlan> find(llvm::function_ref<bool()> goesOn);
  /// Returns the best plan that the flags `pins` allow and that needs at most `most` bytes.
  std::optional<SmallPlan> findOther(Objective objective, const AutoOptions &pins, int64_t most);
  /// Returns the plan with the fewest bytes that the flags `pins` allow, or the first plan found that needs at most
  /// `most` bytes.
  std::optional<SmallPlan> smallestOf(const AutoOptions &pins, int64_t most);
  /// Returns the plan with the fewest bytes from the result of a search in which no plan fits.
  std::optional<SmallPlan> smallestOf(const SearchResult &result);
  pcrt_status failIllegal(const std::string &text);
  /// Returns text that names the plan that needs the least memory, and the flags without which another plan would fit.
  std::string whyNone(const std::optional<SmallPlan> &least);
  /// Records the present state for `soFar`. `bound` is a lower bound on the seconds of the remaining plans.
  void noteSoFar(double bound);
  PlanAnswer answerOf(const Plan &plan, const FoundPlans &found) const;
  FoundPlans found(const SearchResult &result) const;

  SearchProblem problem;
  std::optional<PlanBounds> bounds;
  std::optional<PlanTree> tree;
  std::optional<PriceBook> prices;
  std::optional<Incumbent> incumbent;
  std::optional<OpenPlans> opener;
  int64_t confirmations = 0; ///< requests for a whole compile of a plan, including repeated ones
  int64_t compiled = 0;      ///< plans that were compiled whole
  double gap = 0;
  bool isEstimate = false; ///< the chosen plan was composed, not compiled whole
  std::optional<WhatLimits> limits;
  double leastLeft = 0; ///< lower bound on the seconds of the remaining plans
  mutable std::mutex mutex;
  std::optional<PlanAnswer> known; ///< the answer so far; guarded by `mutex`
};

} // namespace pc

#endif
