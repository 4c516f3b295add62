//===- FoundPlans.cpp - The text and JSON about a search's result ---------------------------===//
// Both forms show the chosen plan first, and then other plans with the reason why they are slower.
//===----------------------------------------------------------------------------------------===//
#include "FoundPlans.h"

#include "llvm/Support/Format.h"
#include <map>
#include <set>

using namespace mlir;
using namespace pc;

/// "141 plans of 2 ranks on cpu: 50 compiled, 12 refused, 0 too large"
std::string FoundPlans::text() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << plans << " plans of " << ranks << " ranks on " << machine << ": ";
  if (composes)
    os << result.priced << " priced from " << result.compositions << " compiled programs of few layers, " << compiled
       << " compiled whole, ";
  else
    os << result.priced << " compiled, ";
  os << result.refused << " refused, " << dropped + std::ssize(result.tooLarge) << " too large";
  return text;
}

/// "0.4 s  58.2 GiB  dp=2 ..."
static std::string lineOf(const FoundPlan &found) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.4g s  ", found.trial.seconds)
                                 << bytesText(static_cast<double>(found.trial.bytes)) << "  " << found.node.text;
  return text;
}

/// The part of a step whose seconds grow most from `best` to `other`.
static StringRef dearerBy(const PlanTrial &other, const PlanTrial &best) {
  std::pair<double, StringRef> parts[] = {
      {other.products - best.products, "products and waits for stages"},
      {other.moves - best.moves, "exposed moves"},
      {(other.seconds - other.products - other.moves) - (best.seconds - best.products - best.moves), "memory traffic"}};
  return std::max_element(std::begin(parts), std::end(parts))->second;
}

/// The lines are: the numbers of the search, the chosen plan with the parts of its step, and up to five plans of other
/// forms with the reason why they are slower.
void FoundPlans::tell(llvm::raw_ostream &os) const {
  const FoundPlan &best = result.fitting.front();
  const PlanTrial &trial = best.trial;
  os << "searched " << text() << llvm::format("; gap %.1f %%\n", 100 * gap);
  if (isEstimate)
    os << "the search was interrupted before it compiled a whole plan: seconds and bytes are estimated from programs "
          "of few layers\n";
  double percent = trial.seconds > 0 ? 100 / trial.seconds : 0;
  os << "chosen   " << lineOf(best)
     << llvm::format("  products %.0f %%  exposed moves %.0f %%  memory traffic %.0f %%",
                     percent * (trial.products - trial.waits), percent * trial.moves,
                     percent * (trial.seconds - trial.products - trial.moves));
  if (trial.waits > 0)
    os << llvm::format("  waits for stages %.0f %%", percent * trial.waits);
  os << "\n";
  // One plan of each form: plans that differ only in numbers say little.
  std::set<std::string> shown{best.node.form};
  std::map<std::string, size_t> numbers; // numbers of the plans that are shown
  for (const FoundPlan &other : result.fitting) {
    if (shown.size() == 6)
      break;
    if (!shown.insert(other.node.form).second)
      continue;
    numbers[other.node.text] = shown.size();
    os << llvm::format("%-9d", static_cast<int>(shown.size())) << lineOf(other)
       << llvm::format("  %+.1f %%", 100 * (other.trial.seconds / trial.seconds - 1))
       << "  slower by: " << dearerBy(other.trial, trial) << "\n";
  }
  if (limit > 0)
    os << "limit    " << limit << " bytes per rank\n";
  if (limits)
    limits->tell(os, best, [&](const FoundPlan &plan) {
      auto it = numbers.find(plan.node.text);
      return it == numbers.end() ? plan.node.text : "plan " + std::to_string(it->second);
    });
}

/// The compiled plans: the chosen one first, those that are too large last.
llvm::json::Object FoundPlans::json() const {
  llvm::json::Array all;
  auto add = [&](const FoundPlan &found) {
    const PlanTrial &trial = found.trial;
    llvm::json::Object plan{{"plan", found.node.text}, {"step_seconds", trial.seconds}, {"arena_bytes", trial.bytes}};
    if (!all.empty())
      plan["dearer_by"] = dearerBy(trial, result.fitting.front().trial);
    all.push_back(std::move(plan));
  };
  llvm::for_each(result.fitting, add);
  llvm::for_each(result.tooLarge, add);
  llvm::json::Object search{{"plans", plans},
                            {"composed", composes ? result.priced : 0},
                            {"compiled", composes ? compiled : result.priced},
                            {"refused", result.refused},
                            {"limit", limit},
                            {"gap", gap},
                            {"candidates", std::move(all)}};
  if (limits)
    limits->addTo(search, result.fitting.front());
  return search;
}
