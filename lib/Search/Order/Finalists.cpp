//===- Finalists.cpp - The best composed plans, compiled whole ---------------------------------===//
#include "Finalists.h"

#include "llvm/ADT/STLExtras.h"
#include <limits>

using namespace pc;

/// Composed bytes may be too many by this share, seldom by more; the whole compile decides.
static constexpr double composedBytes = 0.02;
/// How many of the best composed plans are compiled whole, at most, until one fits that is better than the next.
static constexpr int64_t most = 16;

Finalists pc::compileFinalists(SearchResult &result, int64_t limit, llvm::function_ref<bool(FoundPlan &)> compile,
                               llvm::function_ref<bool()> goesOn) {
  Finalists found;
  std::vector<FoundPlan> all = std::move(result.fitting), rest, whole;
  for (FoundPlan &plan : result.tooLarge)
    if (static_cast<double>(plan.trial.bytes) < (1 + composedBytes) * static_cast<double>(limit))
      all.push_back(plan);
  auto isBetter = [](const FoundPlan &a, const FoundPlan &b) {
    return std::tie(a.trial.seconds, a.trial.bytes, a.node.text) <
           std::tie(b.trial.seconds, b.trial.bytes, b.node.text);
  };
  llvm::sort(all, isBetter);
  double least = std::numeric_limits<double>::infinity();
  for (FoundPlan &plan : all) {
    if (found.compiled == most || plan.trial.seconds >= least || !goesOn()) {
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
    bool fits = limit == 0 || plan.trial.bytes <= limit;
    least = fits ? std::min(least, plan.trial.seconds) : least;
    (fits ? whole : result.tooLarge).push_back(std::move(plan));
  }
  llvm::sort(whole, isBetter);
  if (!rest.empty() && !whole.empty()) // what was composed may be as good
    result.bound = result.bound > 0 ? std::min(result.bound, rest.front().trial.seconds) : rest.front().trial.seconds;
  found.areEstimates = whole.empty() && !goesOn();
  if (found.areEstimates)
    llvm::erase_if(rest, [&](const FoundPlan &plan) { return limit > 0 && plan.trial.bytes > limit; });
  if (found.areEstimates || !whole.empty())
    llvm::append_range(whole, rest);
  result.fitting = std::move(whole);
  return found;
}
