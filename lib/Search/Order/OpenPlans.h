//===- OpenPlans.h - Opens sets of plans, and plans ---------------------------------------------===//
#ifndef PC_LIB_SEARCH_ORDER_OPENPLANS_H
#define PC_LIB_SEARCH_ORDER_OPENPLANS_H

#include "BestFirst.h"
#include "PriceBook.h"

namespace pc {

/// Opens the nodes of a round.
///
/// Input: nodes of the tree. Result: plans, bounds and prices. Opening a set gives its plans, with bounds by the core
/// that they share. A plan is opened several times: it gets better bounds from its bare core, its core and its tasks,
/// and in the end its price. Plans of ZeRO-2 and 3 use a core and tasks twice: first those that they share with ZeRO-1,
/// then their own. Invariant: after `prepare`, `open` is called for each node of the round, in order. It compiles
/// nothing that `prepare` can compile.
class OpenPlans {
public:
  OpenPlans(const SearchProblem &problem, PlanTree &tree, PriceBook &prices, PlanBounds &bounds,
            const Incumbent &incumbent)
      : problem(problem), tree(tree), prices(prices), bounds(bounds), incumbent(incumbent) {}

  void prepare(llvm::ArrayRef<PlanNode> nodes);
  OpenedNode open(const PlanNode &node);
  /// Whether the tasks of the plan's whole program are known to be functions.
  bool callsTasks(const PlanEntry &entry) const;

  const SearchProblem &problem;
  PlanTree &tree;
  PriceBook &prices;
  PlanBounds &bounds;
  const Incumbent &incumbent;

private:
  /// The job that has to run before a node can be opened; std::nullopt if all prices are known.
  std::optional<PlanJob> jobOf(const PlanNode &node);
  /// A plan, with the core and the tasks that give its next bound.
  struct Next {
    Plan plan;
    PlanNumbers numbers;
    PlanCore core;
    std::string tasksKey; ///< empty: its tasks are not priced separately
    bool isShared;        ///< core and tasks are those of ZeRO-1, not the plan's own
  };
  std::optional<Next> nextOf(const PlanEntry &entry) const;
  /// The bare core, which bounds this and many other plans before their own cores do.
  std::optional<PlanCore> bareOf(const PlanEntry &entry, const Plan &plan) const;
  /// Returns the bound of a plan that follows from the cores of other plans.
  double boundByOthers(const PlanEntry &entry, const Next &next) const;
  /// Computes the bounds of the nodes whose tasks are priced.
  void boundByTasks(llvm::ArrayRef<PlanNode> nodes);
  bool isTooLarge(double bytes) const { return problem.limit() > 0 && bytes > static_cast<double>(problem.limit()); }

  OpenedNode openNow(const PlanNode &node);
  OpenedNode openSet(const PlanNode &node);
  OpenedNode openBare(const PlanNode &node, const Next &next);
  OpenedNode openCore(const PlanNode &node, const Next &next);
  OpenedNode openTasks(const PlanNode &node, const Next &next);
  OpenedNode openPrice(const PlanNode &node, const Next &next);
  /// Returns the node with a better bound.
  static OpenedNode again(const PlanNode &node, double bound);
  OpenedNode dropped() {
    ++tree.counts.dropped;
    return {};
  }

  /// The results of `prepare` for the nodes of a round.
  struct Round {
    std::map<std::string, PlanJob> jobs;
    std::map<size_t, std::string> keys;              ///< for each node, the key of its job
    std::map<size_t, double> raised;                 ///< bounds of nodes by the prices of others
    std::map<size_t, PlanBounds::TaskBound> ofTasks; ///< bounds of nodes by their tasks
    std::set<std::string> counted;                   ///< jobs whose programs are counted
  } round;
};

} // namespace pc

#endif
