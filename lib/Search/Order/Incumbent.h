//===- Incumbent.h - The best plan that fits, and when it is good enough -----------------------===//
#ifndef PC_LIB_SEARCH_ORDER_INCUMBENT_H
#define PC_LIB_SEARCH_ORDER_INCUMBENT_H

#include "pc/Search/Search.h"
#include <limits>
#include <optional>

namespace pc {

/// The limits that end a search.
struct SearchLimits {
  Objective objective = Objective::Seconds;
  int64_t bytes = 0;        ///< memory limit per rank; 0: no limit
  int64_t compositions = 1; ///< the most programs that are compiled; the last round may exceed it
  double settle = 0;        ///< a plan is good enough if no other can be better by more than this share
  int64_t settleAfter = 0;  ///< `settle` applies after this number of compiled programs, and is 0 before
  double gap = 0;           ///< the same as `settle`, for the cost of a confirmed plan
  int64_t width = 8;        ///< nodes that are opened together; it does not depend on the number of threads
};

/// Keeps the plans that fit and decides when a search may stop.
///
/// Input: plans with their prices, as they are found, and whether the best one is confirmed or refuted. Result: `best`,
/// and `enough`, the only stopping rule of a search. Invariant: `best` is the cheapest of `fitting`. Among plans whose
/// costs differ by less than 1e-9, it is the one with fewer bytes, then the one whose text comes first.
class Incumbent {
public:
  explicit Incumbent(const SearchLimits &limits) : limits(limits) {}

  bool fits(const PlanTrial &trial) const { return limits.bytes == 0 || trial.bytes <= limits.bytes; }
  bool isBetter(const FoundPlan &a, const FoundPlan &b) const;
  /// Adds a plan that fits.
  void offer(FoundPlan plan);
  /// Records that the best plan fits, and that its cost is the one of `trial`.
  void confirm(const PlanTrial &trial) { confirmed = costOf(trial, limits.objective); }
  /// Removes the best plan, because it does not fit.
  void refute();
  void countCompositions(int64_t count) { compositions += count; }

  /// The best plan; null if no plan fits.
  const FoundPlan *best() const { return bestPlan ? &plans[*bestPlan] : nullptr; }
  llvm::ArrayRef<FoundPlan> fitting() const { return plans; }
  int64_t compiled() const { return compositions; }
  /// Plans that cost this or more need not be opened. Infinite if no plan fits.
  double enough() const;
  /// Whether a search may stop at a node with this bound.
  bool isDone(double bound) const { return bestPlan && bound >= enough(); }

  const SearchLimits limits;

private:
  std::vector<FoundPlan> plans;
  std::optional<size_t> bestPlan; ///< its index in `plans`
  double confirmed = 0;           ///< the confirmed cost of the best plan; 0: not confirmed
  int64_t compositions = 0;       ///< programs that were compiled to open nodes
};

} // namespace pc

#endif
