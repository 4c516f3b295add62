//===- Search.h - The best of many plans, with a proof -----------------------------------===//
// Sets of plans are opened in the order of a lower bound on their seconds: into smaller sets with better bounds, and in
// the end into plans, which the caller prices. The search ends when nothing that is left can be better than the best
// plan that fits.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SEARCH_SEARCH_H
#define PC_SEARCH_SEARCH_H

#include "pc/Cost/Machine.h"
#include "pc/IR/PC.h"
#include <optional>
#include <string>
#include <vector>

namespace pc {

/// What a step of one device has to do, of which no plan can make less.
struct StepWork {
  double flops = 0;          ///< of matrix products of one microbatch, times microbatches
  double parameterBytes = 0; ///< of all parameters, that are rewritten each step
  double stateBytes = 0;     ///< of the optimizer's states
  bool bf16 = false;         ///< whether some products are of bf16

  static StepWork of(mlir::ModuleOp step);
};

/// What a plan's flags alone say of its time.
struct PlanShape {
  int64_t ranks = 1, stages = 1, chunks = 1, microbatches = 1;
  bool splitsWeightGradients = false; ///< they fill what a pipeline waits
};

/// Seconds below which no plan of this shape stays: products at the machine's peak, the least that a pipeline waits,
/// and the parameters once through memory. Moves are free.
double leastSeconds(const StepWork &work, const PlanShape &shape, const MachineModel &machine);

/// The least share of a stage's work on a microbatch that comes before the next stage can begin, if gradients of
/// weights are tasks of their own: a forward pass, when it is recomputed and attention is all there is.
constexpr double leastForwardShare = 0.2;

/// The least seconds of a pipeline whose microbatches take `seconds` of work on one rank of each stage, added up over
/// stages and microbatches. `waitShare`: the share of the work that other stages wait for: all passes, or the forward
/// passes if gradients of weights fill the wait; never recomputation.
double leastPipelineSeconds(double seconds, const PlanShape &shape, double waitShare);

/// What became of a plan.
struct PlanTrial {
  bool isLegal = false;
  double seconds = 0;  ///< of a step
  int64_t bytes = 0;   ///< of the fullest rank
  double products = 0; ///< of the seconds, those left if memory and moves took no time
  double moves = 0;    ///< of the seconds, those that end if moves take no time
  double waits = 0; ///< of `products`, what stages wait for each other in the mean, where the plan was compiled whole
};

/// A plan, or a set of plans.
struct PlanNode {
  size_t id = 0;      ///< the caller's
  std::string text;   ///< as a plan is shown; what decides between equals
  std::string form;   ///< the same for plans that differ in numbers alone
  double bound = 0;   ///< seconds below which none of them stays
  int64_t atOnce = 0; ///< sequences of a microbatch; of equals, those with more come first, and bound the others
  size_t axes = 0;    ///< of the mesh; of these equals, plans with fewer come first
  /// Above 0: a plan that is looked at before all others, lower numbers first, those above 4 until a plan fits. It is
  /// in one of the other nodes, too.
  int probe = 0;
  /// Among plans with the same chain, one of a higher level takes longer and less memory: it is tried if none of a
  /// lower level fits.
  std::string chain;
  int level = 0;
};

/// What a node is, looked at closer.
struct OpenedNode {
  std::optional<PlanTrial> trial; ///< it is a plan, which has been priced
  std::vector<PlanNode> inside;   ///< else: all plans of it are in these
  int compositions = 0;           ///< programs that were compiled to know that
};

struct FoundPlan {
  PlanNode node;
  PlanTrial trial;
};

struct SearchResult {
  std::vector<FoundPlan> fitting;  ///< best first
  std::vector<FoundPlan> tooLarge; ///< those that take more memory than there is, the smallest first
  int64_t compositions = 0;        ///< programs that were compiled
  int64_t priced = 0, refused = 0; ///< plans
  double bound = 0;                ///< seconds below which no plan stays that was not priced; 0: there is none left
};

/// What ends a search.
struct SearchLimits {
  int64_t bytes = 0;        ///< of a rank; 0: any number
  int64_t compositions = 1; ///< at most, but for those of the last nodes that were opened together
  double settle = 0;        ///< a plan is good enough if none can be better by more than this share
  int64_t settleAfter = 0;  ///< after this many compiled programs; before, the search goes on until none can be
  double gap = 0;           ///< nor by more than this share of the seconds that `confirm` knows of it
  int64_t width = 8; ///< nodes that are opened together; any number of threads opens as many, so that all find the same
};

/// Opens nodes in the order of their bounds, several at a time, while `goesOn` says so, until none that is left can
/// beat the best plan that fits. That one is then shown to `confirm`, which may know better what it takes, and writes
/// that into it: if it does not fit after all, the search goes on without it, and if it takes longer, until none can
/// beat that by much.
SearchResult searchPlans(
    std::vector<PlanNode> roots, const SearchLimits &limits, llvm::function_ref<bool()> goesOn,
    llvm::function_ref<std::vector<OpenedNode>(llvm::ArrayRef<PlanNode>)> open,
    llvm::function_ref<bool(FoundPlan &)> confirm = [](FoundPlan &) { return true; });

/// All ways to write `n` as a product of `count` factors, in lexical order, of which all but the last are such as
/// `isGood` says.
std::vector<llvm::SmallVector<int64_t>>
factorizations(int64_t n, size_t count, llvm::function_ref<bool(int64_t)> isGood = [](int64_t) { return true; });

} // namespace pc

#endif
