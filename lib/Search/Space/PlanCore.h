//===- PlanCore.h - The common part of many plans -------------------------------------------===//
// Input: a plan. Result: its core, a smaller plan that many plans contain. Invariant: no plan with this core has less
// work for a microbatch than the core.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_SPACE_PLANCORE_H
#define PC_LIB_SEARCH_SPACE_PLANCORE_H

#include "pc/Plan/Tactics.h"

namespace pc {

/// The common part of the plans of a set: the ranks that share a layer, and their part of a microbatch. Axes that
/// divide only sequences or layers are left out, with their tactics: data parallelism, stages, ZeRO-1.
struct PlanCore {
  Plan plan;
  int64_t batch = 0; ///< sequences of all its ranks; 0: the plan's ranks do not divide the model's sequences

  /// The core of a plan. With `any`, it is the core of all plans that differ in microbatches, data ranks, stages and
  /// ZeRO; a rank then has all sequences at once. With `withData`, it keeps the data ranks of ZeRO-2 and 3; otherwise
  /// it is the core of ZeRO-1, which has no more work.
  static PlanCore of(const Plan &plan, int64_t batch, bool any, bool withData = true);
  /// The core of a plan, on equally many tokens, without the tactics that divide the tokens of sequences, and without
  /// data ranks that are part of a form of tensor parallelism. No rank of the plan has less work. The list is empty if
  /// the plan has none of these, or if they divide sequences into parts. The second core keeps the tactics that divide
  /// tokens, in case the first is illegal.
  static llvm::SmallVector<PlanCore, 2> bareOf(const Plan &plan, int64_t batch);
  std::string key() const;
};

/// A plan without data ranks that are part of a form of tensor parallelism; `ranks` is multiplied by their number.
Plan withoutInnerData(Plan plan, int64_t &ranks);

/// A plan without the tactics that divide the tokens of sequences, and without their axes; `ranks` is multiplied by the
/// number of ranks on these axes.
Plan withoutTokenSharers(Plan plan, int64_t &ranks);

} // namespace pc

#endif
