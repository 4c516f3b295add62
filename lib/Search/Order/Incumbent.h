//===- Incumbent.h - The best plan that fits, and when it is good enough -----------------------===//
#ifndef PC_LIB_SEARCH_ORDER_INCUMBENT_H
#define PC_LIB_SEARCH_ORDER_INCUMBENT_H

#include "pc/Search/Search.h"
#include <limits>
#include <optional>

namespace pc {

/// What ends a search.
struct SearchLimits {
  Objective objective = Objective::Seconds;
  int64_t bytes = 0;        ///< of a rank; 0: any number
  int64_t compositions = 1; ///< programs that are compiled, at most; the last round may exceed it
  double settle = 0;        ///< a plan is good enough if no other can be better by more than this share
  int64_t settleAfter = 0;  ///< `settle` counts after this number of compiled programs, and is 0 before
  double gap = 0;           ///< like `settle`, for the cost of a plan that was confirmed
  int64_t width = 8;        ///< nodes that are opened together, on any number of threads, so that all find the same
};

/// Keeps the plans that fit and decides when a search may stop.
///
/// Input: plans with their prices, as they are found; whether the best one is confirmed or refuted. Result: `best`, and
/// `enough`, the only stopping rule of a search. Invariant: `best` is the cheapest of `fitting`; of plans whose costs
/// differ by less than 1e-9 it is the one with fewer bytes, then the one whose text comes first.
class Incumbent {
public:
  explicit Incumbent(const SearchLimits &limits) : limits(limits) {}

  bool fits(const PlanTrial &trial) const { return limits.bytes == 0 || trial.bytes <= limits.bytes; }
  bool isBetter(const FoundPlan &a, const FoundPlan &b) const;
  /// Adds a plan that fits.
  void offer(FoundPlan plan);
  /// The best plan fits for sure, and costs this.
  void confirm(const PlanTrial &trial) { confirmed = costOf(trial, limits.objective); }
  /// The best plan does not fit: removes it.
  void refute();
  void countCompositions(int64_t count) { compositions += count; }

  /// Null if no plan fits.
  const FoundPlan *best() const { return bestPlan ? &plans[*bestPlan] : nullptr; }
  llvm::ArrayRef<FoundPlan> fitting() const { return plans; }
  int64_t compiled() const { return compositions; }
  /// A plan that costs this or more is not worth opening. Infinite if no plan fits.
  double enough() const;
  /// Whether a search may stop at a node with this bound.
  bool isDone(double bound) const { return bestPlan && bound >= enough(); }

  const SearchLimits limits;

private:
  std::vector<FoundPlan> plans;
  std::optional<size_t> bestPlan; ///< its place in `plans`
  double confirmed = 0;           ///< cost of the best plan when it was confirmed; 0: it was not
  int64_t compositions = 0;       ///< programs that were compiled to open nodes
};

} // namespace pc

#endif
