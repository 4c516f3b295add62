//===- BestFirst.h - Opens sets of plans in the order of their bounds --------------------------===//
// Input: root nodes, an incumbent and who opens nodes. Result: all priced plans, the best first, and the least bound
// that is left. Invariants: rounds and their order do not depend on threads; every plan is in a node that is left, or
// priced.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_ORDER_BESTFIRST_H
#define PC_LIB_SEARCH_ORDER_BESTFIRST_H

#include "Incumbent.h"

namespace pc {

/// What a node is found to be when it is opened.
struct OpenedNode {
  std::optional<PlanTrial> trial; ///< it is a plan, which has been priced
  std::vector<PlanNode> inside;   ///< else: these nodes have all plans of it
  int compositions = 0;           ///< programs that were compiled to know that
};

/// What a search knows of plans.
class NodeOpener {
public:
  virtual ~NodeOpener() = default;
  /// Compiles, on several threads, all that is needed to open the nodes of a round.
  virtual void prepare(llvm::ArrayRef<PlanNode>) {}
  virtual OpenedNode open(const PlanNode &node) = 0;
  /// All nodes of a round were opened. `first` was the first of them.
  virtual void endRound(const PlanNode & /*first*/) {}
  /// Returns whether the best plan fits. If it knows a better price, it writes that into `plan`.
  virtual bool confirm(FoundPlan & /*plan*/) { return true; }
};

/// Opens nodes in the order of their bounds while `goesOn` says so, several in a round: sets into smaller sets with
/// better bounds, and at last into plans with their prices, which are offered to `incumbent`. Ends when the incumbent
/// is good enough for every node that is left, and confirmed: if it does not fit after all, the search continues
/// without it.
SearchResult searchPlans(std::vector<PlanNode> roots, Incumbent &incumbent, llvm::function_ref<bool()> goesOn,
                         NodeOpener &opener);

} // namespace pc

#endif
