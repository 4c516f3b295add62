//===- Search.h - Plans, prices and bounds of a search ------------------------------------===//
// Declares the work of a step, lower bounds that follow from it, and plans with their prices. Bounds are for the
// machine model, not for a real device.
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
  double flops = 0;          ///< matrix products of one microbatch, times the number of microbatches
  double codeFlops = 0;      ///< the part of products that may multiply floats of 8 bits
  double parameterBytes = 0; ///< parameters that a step updates
  double frozenBytes = 0;    ///< frozen parameters
  double sentBytes = 0;      ///< all parameters, as products read them: in f32, in bf16, or as codes
  double stateBytes = 0;     ///< states of the optimizer
  bool bf16 = false;         ///< some products are in bf16

  static StepWork of(mlir::ModuleOp step);
};

/// The properties of a plan that bound its time and follow only from its flags.
struct PlanShape {
  int64_t ranks = 1, stages = 1, chunks = 1, microbatches = 1;
  bool splitsWeightGradients = false; ///< tasks for gradients of weights fill waits of a pipeline
};

/// The seconds of all products on one device, at the peaks of its rates.
double leastProductSeconds(const StepWork &work, const MachineModel &machine);

/// A lower bound on the seconds of plans of this shape: products at the machine's peak, the shortest waits of a
/// pipeline, and reading and writing the parameters once. Moves are free.
double leastSeconds(const StepWork &work, const PlanShape &shape, const MachineModel &machine);

/// A lower bound on the seconds of a pipeline. `seconds` is the work of one rank of each stage, summed over stages and
/// microbatches. `waitShare` is the share of this work for which other stages wait. This work includes all passes or,
/// if gradients of weights fill the waits, only the forward passes; recomputation never belongs to it.
double leastPipelineSeconds(double seconds, const PlanShape &shape, double waitShare);

/// The result of pricing a plan.
struct PlanTrial {
  bool isLegal = false;
  double seconds = 0;  ///< time of a step
  int64_t bytes = 0;   ///< memory of the fullest rank
  double products = 0; ///< the seconds that are left if memory and moves take no time
  double moves = 0;    ///< the seconds that are saved if moves take no time
  double waits = 0;    ///< the part of `products` in which a stage waits on average; only known for whole compiles
};

/// The quantity that a search minimizes.
enum class Objective : uint8_t { Seconds, Bytes };

/// The cost by which a search compares plans: seconds of a step, or bytes of the fullest rank.
inline double costOf(const PlanTrial &trial, Objective objective) {
  return objective == Objective::Seconds ? trial.seconds : static_cast<double>(trial.bytes);
}

/// A plan, or a set of plans. To open a node means to price the plan, or to divide the set.
struct PlanNode {
  size_t id = 0;                    ///< given by the caller
  std::string text;                 ///< a plan's text, also used as the last tie-break
  std::string form;                 ///< equal for plans that differ only in numbers
  double bound = 0;                 ///< lower bound on the cost of the node's plans
  std::array<int64_t, 3> turn = {}; ///< among equal bounds, nodes are opened in lexical order of their turns
  /// If above 0, the node is a plan that is opened before all others, lower numbers first. Numbers above 4 are opened
  /// only until a plan fits. The same plan is also in one of the other nodes.
  int probe = 0;
  /// Plans with the same chain differ only in recomputation. A higher level takes longer and needs less memory: it is
  /// tried only if no lower level of the chain fits.
  std::string chain;
  int level = 0; ///< how much is recomputed: 0 nothing, 1 selected ops, 2 all
};

struct FoundPlan {
  PlanNode node;
  PlanTrial trial;
};

/// The result of a search.
struct SearchResult {
  std::vector<FoundPlan> fitting;  ///< plans that fit, best first
  std::vector<FoundPlan> tooLarge; ///< plans that need more memory than the limit, the smallest first
  int64_t compositions = 0;        ///< programs that were compiled
  int64_t priced = 0, refused = 0; ///< numbers of plans
  double bound = 0;                ///< lower bound on the cost of unpriced plans; 0: every plan was priced
};

} // namespace pc

#endif
