//===- BestFirst.h - Opens sets of plans in the order of their bounds --------------------------===//
// Input: root nodes, an incumbent, and a NodeOpener. Result: all priced plans, the best first, and the lowest bound of
// the remaining nodes. Invariants: rounds and their order do not depend on threads; every plan is either priced or in a
// remaining node.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_ORDER_BESTFIRST_H
#define PC_LIB_SEARCH_ORDER_BESTFIRST_H

#include "Incumbent.h"

namespace pc {

/// The result of opening a node.
struct OpenedNode {
  std::optional<PlanTrial> trial; ///< the price, if the node is a plan
  std::vector<PlanNode> inside;   ///< otherwise: nodes that contain all its plans
  int compositions = 0;           ///< programs that were compiled to open it
};

/// Compiles and prices plans for a search.
class NodeOpener {
public:
  virtual ~NodeOpener() = default;
  /// Compiles, on several threads, all programs that are needed to open the nodes of a round.
  virtual void prepare(llvm::ArrayRef<PlanNode>) {}
  virtual OpenedNode open(const PlanNode &node) = 0;
  /// Called after all nodes of a round were opened. `first` is the first of them.
  virtual void endRound(const PlanNode & /*first*/) {}
  /// Returns whether the best plan fits. Writes a more exact price into `plan` if there is one.
  virtual bool confirm(FoundPlan & /*plan*/) { return true; }
};

/// Opens nodes in the order of their bounds, several in a round, while `goesOn` returns true. Opening a set splits it
/// into smaller sets with tighter bounds. A set that cannot be split gives plans, whose prices are offered to
/// `incumbent`. When no remaining node can beat the incumbent, the incumbent is checked. If it is confirmed, the search
/// ends; if it does not fit, the search continues without it.
SearchResult searchPlans(std::vector<PlanNode> roots, Incumbent &incumbent, llvm::function_ref<bool()> goesOn,
                         NodeOpener &opener);

} // namespace pc

#endif
