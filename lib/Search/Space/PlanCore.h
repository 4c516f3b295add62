//===- PlanCore.h - What many plans have in common ------------------------------------------===//
// Input: a plan. Result: its core, a smaller plan that many plans have. Invariant: no plan with this core has less to
// do for a microbatch than the core has.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_SPACE_PLANCORE_H
#define PC_LIB_SEARCH_SPACE_PLANCORE_H

#include "pc/Plan/Tactics.h"

namespace pc {

/// The common part of the plans of a set: the ranks that share a layer, and their part of a microbatch. Axes that
/// divide only sequences or layers are left out, with their tactics: data parallelism, stages, ZeRO-1.
struct PlanCore {
  Plan plan;
  int64_t batch = 0; ///< sequences of all its ranks; 0: the plan's ranks do not divide the model's

  /// The core of a plan. `any`: the core of all plans that differ in microbatches, data ranks, stages and ZeRO, with as
  /// much on a rank as there is. `withData`: keeps the data ranks that ZeRO-2 and 3 have in the core; else returns the
  /// core of ZeRO-1, which does no more.
  static PlanCore of(const Plan &plan, int64_t batch, bool any, bool withData = true);
  /// The core of a plan without what shares out the tokens of sequences, and without data ranks that are part of a form
  /// of tensor parallelism, on as many tokens: no rank of the plan has less to do. None if the plan has none of these,
  /// or they share out parts of sequences. The second core keeps what shares out tokens: for when the first is illegal.
  static llvm::SmallVector<PlanCore, 2> bareOf(const Plan &plan, int64_t batch);
  std::string key() const;
};

/// A plan without data ranks that are part of a form of tensor parallelism; `ranks` is multiplied by their number.
Plan withoutInnerData(Plan plan, int64_t &ranks);

/// A plan without the tactics that share out tokens of sequences and their axes; `ranks` is multiplied by the number
/// of ranks that share.
Plan withoutTokenSharers(Plan plan, int64_t &ranks);

} // namespace pc

#endif
