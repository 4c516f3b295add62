//===- Search.h - Plans as a search sees them ---------------------------------------------===//
// Declares the work of a step, lower bounds that follow from it, and plans with their prices. Bounds hold on the
// machine model: its seconds, not those of a device.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SEARCH_SEARCH_H
#define PC_SEARCH_SEARCH_H

#include "pc/Cost/Machine.h"
#include "pc/IR/PC.h"
#include <array>
#include <string>
#include <vector>

namespace pc {

/// The work of a step on one device. No plan can do less.
struct StepWork {
  double flops = 0;          ///< of matrix products of one microbatch, times microbatches
  double parameterBytes = 0; ///< of all parameters that are rewritten each step: not frozen ones
  double frozenBytes = 0;    ///< of the others
  double stateBytes = 0;     ///< of the optimizer's states
  bool bf16 = false;         ///< whether some products are of bf16

  static StepWork of(mlir::ModuleOp step);
};

/// What follows about a plan's time only from its flags.
struct PlanShape {
  int64_t ranks = 1, stages = 1, chunks = 1, microbatches = 1;
  bool splitsWeightGradients = false; ///< they fill what a pipeline waits
};

/// Seconds below which no plan of this shape stays: products at the machine's peak, the least that a pipeline waits,
/// and the parameters once through memory. Moves are free.
double leastSeconds(const StepWork &work, const PlanShape &shape, const MachineModel &machine);

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

/// What a search makes as small as possible.
enum class Objective : uint8_t { Seconds, Bytes };

/// What a search compares plans by: seconds of a step, or bytes of the fullest rank.
inline double costOf(const PlanTrial &trial, Objective objective) {
  return objective == Objective::Seconds ? trial.seconds : static_cast<double>(trial.bytes);
}

/// A plan, or a set of plans, that a search can open.
struct PlanNode {
  size_t id = 0;                    ///< given by the caller
  std::string text;                 ///< a plan as it is shown; the last to decide between equals
  std::string form;                 ///< equal for plans that differ only in numbers
  double bound = 0;                 ///< no plan of the node costs less
  std::array<int64_t, 3> turn = {}; ///< among equal bounds, nodes are opened in lexical order of their turns
  /// Above 0: a plan that is opened before all others, lower numbers first; numbers above 4 only until a plan fits. The
  /// same plan is also in one of the other nodes.
  int probe = 0;
  /// Plans with the same chain differ only in recomputation. A higher level takes longer and needs less memory: it is
  /// tried if no lower level of the chain fits.
  std::string chain;
  int level = 0; ///< of recomputation: 0 none, 1 selective, 2 full
};

struct FoundPlan {
  PlanNode node;
  PlanTrial trial;
};

/// What a search has found.
struct SearchResult {
  std::vector<FoundPlan> fitting;  ///< best first
  std::vector<FoundPlan> tooLarge; ///< plans that take more memory than the limit, the smallest first
  int64_t compositions = 0;        ///< programs that were compiled
  int64_t priced = 0, refused = 0; ///< plans
  double bound = 0;                ///< no plan that was not priced costs less; 0: every plan was priced
};

} // namespace pc

#endif
