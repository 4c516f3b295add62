//===- PlanSearch.h - Searches a plan, and says what it found -----------------------------------===//
#ifndef PC_LIB_SEARCH_ORDER_PLANSEARCH_H
#define PC_LIB_SEARCH_ORDER_PLANSEARCH_H

#include "../Report/BlamePins.h"
#include "../Report/FoundPlans.h"
#include "OpenPlans.h"

#include <mutex>

namespace pc {

/// What a search found.
struct PlanAnswer {
  Plan plan;
  std::string said; ///< for standard error
  llvm::json::Object report;
};

/// Runs one search from its flags to its answer.
///
/// Input: a model, flags, a machine and an objective. Result: a plan with its report, or an error. The parts do the
/// work: PlanTree has the nodes, PriceBook the prices, OpenPlans opens nodes, and Incumbent says when to stop.
/// Invariant: an answer that is not an estimate was compiled whole, and fits.
class PlanSearch : NodeOpener {
public:
  PlanSearch(mlir::ModuleOp model, const CompileOptions &options, const MachineModel &machine,
             Objective objective = Objective::Seconds)
      : problem(model, options, machine, objective) {}

  /// Searches while `goesOn`, which several threads ask, says so. Errors are emitted.
  pcrt_status run(PlanAnswer &answer, llvm::function_ref<bool()> goesOn);
  /// The best plan by now; another thread may ask while the search runs.
  std::optional<PlanAnswer> soFar() const;
  int64_t mostCompositions() const { return problem.mostCompositions(); }

private:
  void prepare(llvm::ArrayRef<PlanNode> nodes) override { opener->prepare(nodes); }
  OpenedNode open(const PlanNode &node) override { return opener->open(node); }
  void endRound(const PlanNode &first) override;
  bool confirm(FoundPlan &plan) override;

  /// Reads the request, and creates the parts. Emits errors.
  pcrt_status begin(llvm::function_ref<bool()> goesOn);
  /// Searches while `goesOn` says so; then compiles plans whole.
  SearchResult searchAll(llvm::function_ref<bool()> goesOn);
  /// Adds plans whose layers are recomputed differently, if these are the fastest that fit.
  void mixLayers(SearchResult &result);
  /// Runs a search of its own for the best plan; in bytes, with a limit, for the first one that does not exceed it.
  std::optional<SmallPlan> find(llvm::function_ref<bool()> goesOn);
  /// The best plan that the flags `pins` leave and that takes `most` bytes at most.
  std::optional<SmallPlan> findOther(Objective objective, const AutoOptions &pins, int64_t most);
  /// The plan with the fewest bytes that the flags `pins` leave, or the first one found that takes `most` at most.
  std::optional<SmallPlan> smallestOf(const AutoOptions &pins, int64_t most);
  /// The plan with the fewest bytes of a search in which none fits.
  std::optional<SmallPlan> smallestOf(const SearchResult &result);
  pcrt_status failIllegal(const std::string &text);
  /// Says the least that would do, and the flags without which that were less.
  std::string whyNone(const std::optional<SmallPlan> &least);
  /// Records the present state for `soFar`; no plan that is left takes less than `bound` seconds.
  void noteSoFar(double bound);
  PlanAnswer answerOf(const Plan &plan, const FoundPlans &found) const;
  FoundPlans found(const SearchResult &result) const;

  SearchProblem problem;
  std::optional<PlanBounds> bounds;
  std::optional<PlanTree> tree;
  std::optional<PriceBook> prices;
  std::optional<Incumbent> incumbent;
  std::optional<OpenPlans> opener;
  int64_t confirmations = 0; ///< plans for which a whole compile was asked, also if there was one already
  int64_t compiled = 0;      ///< plans that were compiled whole
  double gap = 0;
  bool isEstimate = false; ///< the chosen plan was composed, and not compiled whole
  std::optional<WhatLimits> limits;
  double leastLeft = 0; ///< no plan that is left takes fewer seconds
  mutable std::mutex mutex;
  std::optional<PlanAnswer> known; ///< the answer so far; guarded by `mutex`
};

} // namespace pc

#endif
