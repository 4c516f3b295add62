//===- PlanCore.h - The common part of many plans -------------------------------------------===//
// Input: a plan. Result: its core, a smaller plan that many plans contain. Invariant: no plan with this core has less
// work for a microbatch than the core.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_SPACE_PLANCORE_H
#define PC_LIB_SEARCH_SPACE_PLANCORE_H

#include "pc/Plan/Tactics.h"

namespace pc {

/// The common part of the plans of a set: the ranks that share a layer, and their part of a microbatch. Axes that
/// divide only sequences or layers are left out, and so are their tactics: data parallelism, stages, ZeRO-1.
struct PlanCore {
  Plan plan;
  int64_t batch = 0; ///< sequences of all its ranks; 0: the plan's ranks do not divide the model's sequences

  /// Returns the core of a plan. If `any` is true, it is the core of all plans that differ only in microbatches, data
  /// ranks, stages and ZeRO, and a rank has all sequences at once. If `withData` is true, the core keeps the data ranks
  /// of ZeRO-2 and 3; otherwise it is the core of ZeRO-1, which does not have more work.
  static PlanCore of(const Plan &plan, int64_t batch, bool any, bool withData = true);
  /// Returns cores of a plan on equally many tokens, without the tactics that divide the tokens of sequences, and
  /// without data ranks that are part of a form of tensor parallelism. No rank of the plan has less work than a rank of
  /// such a core. The list is empty if the plan has no such tactics or ranks, or if they divide sequences into parts.
  /// The second core keeps the tactics that divide tokens, in case the first is illegal.
  static llvm::SmallVector<PlanCore, 2> bareOf(const Plan &plan, int64_t batch);
  std::string key() const;
};

/// Returns a plan without the data ranks that are part of a form of tensor parallelism. Multiplies `ranks` by the
/// number of these data ranks.
Plan withoutInnerData(Plan plan, int64_t &ranks);

/// Returns a plan without the tactics that divide the tokens of sequences, and without the axes of these tactics.
/// Multiplies `ranks` by the number of ranks on these axes.
Plan withoutTokenSharers(Plan plan, int64_t &ranks);

} // namespace pc

#endif
