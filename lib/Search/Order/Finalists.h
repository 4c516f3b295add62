//===- Finalists.h - The best composed plans, compiled whole -----------------------------------===//
// Input: plans with composed prices. Result: the best of them with the prices of their whole programs. Invariant: the
// first plan was compiled whole and fits, unless the search ended before that (`areEstimates`).
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_ORDER_FINALISTS_H
#define PC_LIB_SEARCH_ORDER_FINALISTS_H

#include "Incumbent.h"

namespace pc {

/// How many plans were compiled whole, and whether the result is only an estimate.
struct Finalists {
  int64_t compiled = 0;
  bool areEstimates = false; ///< the search ended before a whole compile: prices of plans that fit are composed
};

/// Compiles the best composed plans whole, while `goesOn` returns true, until one fits and no other plan should be
/// better. So the price of the plan that is reported first is not an estimate. `compile` replaces the composed price of
/// a plan by the price of the whole program. It returns false if the plan is not legal, or if the compile was
/// interrupted.
Finalists compileFinalists(SearchResult &result, const Incumbent &incumbent,
                           llvm::function_ref<bool(FoundPlan &)> compile, llvm::function_ref<bool()> goesOn);

} // namespace pc

#endif
