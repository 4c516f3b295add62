//===- Search.h - The best of many plans, with a proof -----------------------------------===//
// Plans are tried in the order of a bound on their seconds; who knows how to compile one tries it. The search ends
// where no plan that is left can be better than the best one that fits.
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

/// What became of a plan.
struct PlanTrial {
  bool isLegal = false;
  double seconds = 0;  ///< of a step
  int64_t bytes = 0;   ///< of the fullest rank
  double products = 0; ///< of the seconds, those left if memory and moves took no time
  double moves = 0;    ///< of the seconds, those that end if moves take no time
};

struct PlanCandidate {
  std::string text; ///< as it is shown; what decides between equals
  std::string form; ///< the same for plans that differ in numbers alone
  double bound = 0; ///< seconds
  size_t axes = 0;  ///< of the mesh; of equals, plans with fewer come first
  /// Of plans with one chain and bound, one of a higher level takes longer and less memory: it is for where none of a
  /// lower level fits.
  std::string chain;
  int level = 0;
};

struct FoundPlan {
  size_t candidate = 0;
  PlanTrial trial;
};

struct SearchResult {
  std::vector<FoundPlan> fitting;  ///< best first
  std::vector<FoundPlan> tooLarge; ///< those that take more memory than there is, the smallest first
  int64_t compiled = 0, refused = 0;
  double gap = 0; ///< how much better, as a share, a plan that was not tried might be
};

/// Tries the candidates in the order of their bounds, at most `most` of them and while `goesOn` says so, until none
/// that is left can beat the best that takes at most `limit` bytes (0: any number).
SearchResult searchPlans(llvm::ArrayRef<PlanCandidate> candidates, int64_t limit, int64_t most,
                         llvm::function_ref<bool()> goesOn, llvm::function_ref<PlanTrial(size_t)> tryPlan);

/// All ways to write `n` as a product of `count` factors, in lexical order.
std::vector<llvm::SmallVector<int64_t>> factorizations(int64_t n, size_t count);

} // namespace pc

#endif
