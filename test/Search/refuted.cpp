//===- refuted.cpp - A search whose best plan turns out not to fit --------===//
// Plans 0 to 9 take 10 to 19 seconds. By their composed prices plans 0 and 1 fit, but they do not. Run by refuted.test.
//===----------------------------------------------------------------------===//
#include "Order/BestFirst.h"

#include "llvm/Support/raw_ostream.h"

using namespace pc;

namespace {
struct Opener : NodeOpener {
  OpenedNode open(const PlanNode &node) override { return {PlanTrial{true, node.bound, 1}, {}, 1}; }
  bool confirm(FoundPlan &plan) override {
    llvm::outs() << "asked for " << plan.node.id << "\n";
    if (plan.node.id < 2)
      plan.trial.bytes = 100;
    return plan.node.id >= 2;
  }
};
} // namespace

int main() {
  std::vector<PlanNode> roots(10);
  for (size_t i = 0; i < roots.size(); ++i) {
    roots[i].id = i;
    roots[i].bound = 10 + static_cast<double>(i);
  }
  roots[0].chain = roots[8].chain = "spared"; // while plan 0 is thought to fit
  roots[8].level = 1;
  Opener opener;
  Incumbent incumbent({.bytes = 10, .compositions = 100});
  SearchResult result = searchPlans(roots, incumbent, [] { return true; }, opener);
  llvm::outs() << "best " << result.fitting.front().node.id << ", too large " << result.tooLarge.size() << ": "
               << result.tooLarge.front().trial.bytes << " bytes, bound " << result.bound << "\n";
}
