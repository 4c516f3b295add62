//===- refuted.cpp - A search whose best plan turns out not to fit --------===//
// Plans 0 to 9 take 10 to 19 seconds; the search believes that 0 and 1 fit, and they do not. Run by refuted.test.
//===----------------------------------------------------------------------===//
#include "pc/Search/Search.h"

#include "llvm/Support/raw_ostream.h"

using namespace pc;

int main() {
  std::vector<PlanNode> roots(10);
  for (size_t i = 0; i < roots.size(); ++i) {
    roots[i].id = i;
    roots[i].bound = 10 + static_cast<double>(i);
  }
  roots[0].chain = roots[8].chain = "spared"; // while plan 0 is thought to fit
  roots[8].level = 1;
  auto open = [](llvm::ArrayRef<PlanNode> nodes) {
    std::vector<OpenedNode> opened(nodes.size());
    for (size_t i = 0; i < nodes.size(); ++i)
      opened[i] = {PlanTrial{true, nodes[i].bound, 1}, {}, 1};
    return opened;
  };
  auto confirm = [](FoundPlan &plan) {
    llvm::outs() << "asked for " << plan.node.id << "\n";
    if (plan.node.id < 2)
      plan.trial.bytes = 100;
    return plan.node.id >= 2;
  };
  SearchResult result = searchPlans(roots, {10, 100, 0}, [] { return true; }, open, confirm);
  llvm::outs() << "best " << result.fitting.front().node.id << ", too large " << result.tooLarge.size() << ": "
               << result.tooLarge.front().trial.bytes << " bytes, bound " << result.bound << "\n";
}
