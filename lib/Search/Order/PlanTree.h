//===- PlanTree.h - The nodes of a search -------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_ORDER_PLANTREE_H
#define PC_LIB_SEARCH_ORDER_PLANTREE_H

#include "../Bound/PlanBounds.h"
#include "SearchProblem.h"

namespace pc {

/// A set of plans that split layers in the same way, and the sizes of the axes that split the layers.
struct SetNode {
  size_t set;
  AxisSizes inner;
  std::optional<PlanCore> core; ///< bounds the set, with all sequences; null if the base is not a plan
  bool isCounted = false;       ///< its plans are counted
};

/// A plan, as the numbers that select it in its family, and flags that say which of its bounds are known.
struct PlanEntry {
  size_t set, family;
  AxisSizes sizes;
  int64_t microbatches = 1;
  bool hasBare = false;  ///< the bound of its bare core
  bool hasCore = false;  ///< the bound of its core
  bool hasTasks = false; ///< the bound of its tasks
  bool hasData = false;  ///< core and tasks have the plan's data ranks; otherwise they are those of ZeRO-1
};

/// A closed-form estimate of a plan.
struct PlanGuess {
  PlanEntry entry;
  bool isLarge;   ///< it probably exceeds the limit (bounds of bytes are far below the real sizes)
  double seconds; ///< the seconds of a step
};

/// The plans of a set.
struct PlanCounts {
  int64_t plans = 0;   ///< plans that were enumerated
  int64_t dropped = 0; ///< the plans that are too large by a bound
};

/// Keeps the sets, families and plans of a search, and creates their nodes.
///
/// Input: the space of the problem. Result: roots of the search, and plans by the id of their node. Invariants: ids
/// below the number of set nodes are sets, and the others are plans; the meaning of an id never changes.
class PlanTree {
public:
  PlanTree(const SearchProblem &problem, const PlanBounds &bounds);

  llvm::ArrayRef<PlanSet> sets() const { return allSets; }
  bool isSet(size_t id) const { return id < setNodes.size(); }
  SetNode &setOf(size_t id) { return setNodes[id]; }
  PlanEntry &entryOf(size_t id) { return entries[id - setNodes.size()]; }
  const PlanFamily &familyOf(const PlanEntry &entry) const { return allSets[entry.set].families[entry.family]; }
  PlanNumbers numbersOf(const PlanEntry &entry) const;
  /// The plan of a node, before layers are assigned to its stages; std::nullopt if these sizes are not possible.
  std::optional<Plan> planOf(const PlanEntry &entry) {
    return problem.space.planOf(familyOf(entry), entry.sizes, entry.microbatches, refusal);
  }
  /// The plan of a node with this mode of recomputation.
  std::optional<Plan> planWith(size_t id, llvm::StringRef mode);
  /// The core, with all sequences, of the plans of a set whose axes have these sizes.
  std::optional<PlanCore> coreOf(const PlanSet &set, llvm::ArrayRef<int64_t> inner) const;
  /// The sequences of a microbatch on one data rank of the plan.
  int64_t atOnce(const PlanNumbers &plan) const {
    return problem.batch / (plan.microbatches * static_cast<int64_t>(plan.data));
  }

  /// Adds a plan, and creates its node.
  PlanNode add(PlanEntry entry, const PlanNumbers &numbers, double bound);
  /// Adds a plan that was derived from the plan of node `id`. Returns its id.
  size_t addCopy(size_t id, Plan plan);
  /// Calls `use` with the plans of a set in which the axes that split layers have the sizes `inner`. Leaves out
  /// repeated plans and plans that are too large.
  PlanCounts forPlansOf(size_t set, llvm::ArrayRef<int64_t> inner,
                        llvm::function_ref<void(size_t family, const PlanNumbers &numbers)> use);
  /// Calls `use` with closed-form estimates of the plans of a set. Does nothing if none of the plans is legal or their
  /// core is unknown. Leaves out plans that could only be compiled whole.
  void forGuesses(const PlanSet &set, llvm::ArrayRef<int64_t> inner, const std::optional<PlanCore> &core,
                  llvm::function_ref<void(const PlanGuess &, const PlanNumbers &)> use);
  /// The roots of a search that opens sets: all sets, and as probes the plans with the best estimates.
  std::vector<PlanNode> setRoots();
  /// The roots of a search without sets: all plans.
  std::vector<PlanNode> planRoots();
  /// Whether a plan that was found in a set is new.
  bool isNew(const std::string &text) { return !triedTexts.count(text) && inHeap.insert(text).second; }

  /// Records a plan as it was priced, including the layers of its stages.
  void setTried(const PlanNode &node, const Plan &plan) {
    tried.insert_or_assign(node.id, plan);
    triedTexts.insert(node.text);
  }
  const Plan &triedPlan(size_t id) const { return tried.at(id); }
  const std::set<std::string> &textsOfTried() const { return triedTexts; }
  /// Returns why no plan was legal: "; the first was refused: ...", or an empty text.
  std::string firstRefusal() const;

  PlanCounts counts;
  std::string refusal; ///< why the first illegal plan was refused

private:
  void addProbes(std::vector<PlanNode> &roots);

  const SearchProblem &problem;
  const PlanBounds &bounds;
  std::vector<PlanSet> allSets;
  std::vector<std::vector<PlanNumbers>> numbers; ///< the numbers of one plan of each family
  std::vector<SetNode> setNodes;
  std::vector<PlanEntry> entries;
  std::set<std::string> inHeap; ///< the plans that opened sets have added
  std::map<size_t, Plan> tried; ///< by node
  std::set<std::string> triedTexts;
  std::string unlike;    ///< why flags that cannot be combined were refused (the first time)
  bool isUneven = false; ///< the ranks and microbatches of some plan do not divide the sequences of a step
};

} // namespace pc

#endif
