//===- FoundPlans.cpp - What a search has found, in words -----------------------------------===//
#include "FoundPlans.h"

#include "llvm/Support/Format.h"
#include <set>

using namespace mlir;
using namespace pc;

/// "141 plans of 2 ranks on cpu: 50 compiled, 12 refused, 0 too large"
std::string FoundPlans::text() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << plans << " plans of " << ranks << " ranks on " << machine << ": ";
  if (composes)
    os << result.priced << " composed of " << result.compositions << " compiles of few layers, " << compiled
       << " compiled whole, ";
  else
    os << result.priced << " compiled, ";
  os << result.refused << " refused, " << dropped + std::ssize(result.tooLarge) << " too large";
  return text;
}

/// "0.4 s  58.2 GiB  dp=2 ..."
static std::string lineOf(const FoundPlan &found) {
  std::string text;
  double bytes = static_cast<double>(found.trial.bytes);
  int unit = bytes >= 1e9 ? 2 : bytes >= 1e6 ? 1 : 0;
  const char *units[] = {"KiB", "MiB", "GiB"};
  llvm::raw_string_ostream(text) << llvm::format("%.4g s  %.4g %s  ", found.trial.seconds,
                                                 bytes / (1 << (10 * (unit + 1))), units[unit])
                                 << found.node.text;
  return text;
}

/// Which part of a step of `other` is longer by most.
static StringRef dearerBy(const PlanTrial &other, const PlanTrial &best) {
  std::pair<double, StringRef> parts[] = {
      {other.products - best.products, "products, and waits for stages"},
      {other.moves - best.moves, "moves that nothing hides"},
      {(other.seconds - other.products - other.moves) - (best.seconds - best.products - best.moves), "memory traffic"}};
  return std::max_element(std::begin(parts), std::end(parts))->second;
}

void FoundPlans::tell(llvm::raw_ostream &os) const {
  const FoundPlan &best = result.fitting.front();
  const PlanTrial &trial = best.trial;
  os << "searched " << text() << llvm::format("; gap %.1f %%\n", 100 * gap);
  if (isEstimate)
    os << "interrupted before a plan was compiled whole: seconds and bytes are put together from few layers\n";
  double percent = trial.seconds > 0 ? 100 / trial.seconds : 0;
  os << "chosen   " << lineOf(best)
     << llvm::format("  products %.0f %%  exposed moves %.0f %%  memory traffic %.0f %%\n", percent * trial.products,
                     percent * trial.moves, percent * (trial.seconds - trial.products - trial.moves));
  std::set<std::string> shown{best.node.form};
  for (const FoundPlan &other : result.fitting) {
    if (shown.size() == 6)
      break;
    if (!shown.insert(other.node.form).second)
      continue;
    os << llvm::format("%-9d", static_cast<int>(shown.size())) << lineOf(other)
       << llvm::format("  %+.1f %%", 100 * (other.trial.seconds / trial.seconds - 1))
       << "  dearer by: " << dearerBy(other.trial, trial) << "\n";
  }
  if (limit > 0)
    os << "limit    " << limit << " bytes a rank\n";
}

/// The plans that were compiled, the chosen one first, those that are too large last.
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
  return llvm::json::Object{{"plans", plans},
                            {"composed", composes ? result.priced : 0},
                            {"compiled", composes ? compiled : result.priced},
                            {"refused", result.refused},
                            {"limit", limit},
                            {"gap", gap},
                            {"candidates", std::move(all)}};
}
