//===- Finalists.cpp - The best composed plans, compiled whole ---------------------------------===//
// Composed prices are estimates, so the search ends with compiles of whole plans, in the order of their composed cost.
//===-------------------------------------------------------------------------------------------===//
#include "Finalists.h"
#include "../Bound/Margins.h"

#include "llvm/ADT/STLExtras.h"
#include <limits>

using namespace pc;

/// The most composed plans that are compiled whole until one fits and is better than the next one.
static constexpr int64_t most = 16;

/// Sorts all plans that may fit by their composed cost and compiles them in this order. Plans whose composed bytes are
/// slightly above the limit also count, since these bytes are estimates.
Finalists pc::compileFinalists(SearchResult &result, const Incumbent &incumbent,
                               llvm::function_ref<bool(FoundPlan &)> compile, llvm::function_ref<bool()> goesOn) {
  int64_t limit = incumbent.limits.bytes;
  auto cost = [&](const FoundPlan &plan) { return costOf(plan.trial, incumbent.limits.objective); };
  Finalists found;
  std::vector<FoundPlan> all = std::move(result.fitting), rest, whole;
  for (FoundPlan &plan : result.tooLarge)
    if (static_cast<double>(plan.trial.bytes) < (1 + margins::composedBytes) * static_cast<double>(limit))
      all.push_back(plan);
  auto isBetter = [&](const FoundPlan &a, const FoundPlan &b) {
    double ofA = cost(a), ofB = cost(b);
    return std::tie(ofA, a.trial.bytes, a.node.text) < std::tie(ofB, b.trial.bytes, b.node.text);
  };
  llvm::sort(all, isBetter);
  double least = std::numeric_limits<double>::infinity();
  for (FoundPlan &plan : all) {
    if (found.compiled == most || cost(plan) >= least || !goesOn()) {
      rest.push_back(std::move(plan));
      continue;
    }
    bool isLegal = compile(plan), ended = !isLegal && !goesOn();
    found.compiled += !ended;
    if (!isLegal) {
      if (ended)
        rest.push_back(std::move(plan));
      continue;
    }
    bool fits = incumbent.fits(plan.trial);
    least = fits ? std::min(least, cost(plan)) : least;
    (fits ? whole : result.tooLarge).push_back(std::move(plan));
  }
  llvm::sort(whole, isBetter);
  if (!rest.empty() && !whole.empty()) // a composed plan may also be that good
    result.bound = result.bound > 0 ? std::min(result.bound, cost(rest.front())) : cost(rest.front());
  found.areEstimates = whole.empty() && !goesOn();
  if (found.areEstimates)
    llvm::erase_if(rest, [&](const FoundPlan &plan) { return !incumbent.fits(plan.trial); });
  if (found.areEstimates || !whole.empty())
    llvm::append_range(whole, rest);
  result.fitting = std::move(whole);
  return found;
}
