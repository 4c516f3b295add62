//===- BestFirst.cpp - Opens sets of plans in the order of their bounds ------------------------===//
// This file does not deal with programs: a NodeOpener compiles and prices plans. CONTRIBUTING.md describes how to print
// the traces of `pc-search`.
//===-----------------------------------------------------------------------------===//
#include "BestFirst.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Debug.h"
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#define DEBUG_TYPE "pc-search"

using namespace pc;

//===---------------------------------------------------------------------------===//
// The incumbent
//===---------------------------------------------------------------------------===//

bool Incumbent::isBetter(const FoundPlan &a, const FoundPlan &b) const {
  double ofA = costOf(a.trial, limits.objective), ofB = costOf(b.trial, limits.objective);
  if (std::abs(ofA - ofB) > 1e-9 * std::max(ofA, ofB))
    return ofA < ofB;
  return std::tie(a.trial.bytes, a.node.text) < std::tie(b.trial.bytes, b.node.text);
}

/// A new best plan is not confirmed yet.
void Incumbent::offer(FoundPlan plan) {
  plans.push_back(std::move(plan));
  if (bestPlan && !isBetter(plans.back(), *best()))
    return;
  bestPlan = plans.size() - 1;
  confirmed = 0;
}

/// After the best plan is removed, the best of the remaining plans takes its place.
void Incumbent::refute() {
  plans.erase(plans.begin() + static_cast<std::ptrdiff_t>(*bestPlan));
  bestPlan.reset();
  confirmed = 0;
  for (size_t i = 0; i < plans.size(); ++i)
    if (!bestPlan || isBetter(plans[i], *best()))
      bestPlan = i;
}

double Incumbent::enough() const {
  if (!bestPlan)
    return std::numeric_limits<double>::infinity();
  double settle = compositions >= limits.settleAfter ? limits.settle : 0;
  return std::max((1 - settle) * costOf(best()->trial, limits.objective), (1 - limits.gap) * confirmed);
}

//===---------------------------------------------------------------------------===//
// The search
//===---------------------------------------------------------------------------===//

/// Returns true if `a` is opened before `b`.
static bool comesBefore(const PlanNode &a, const PlanNode &b) {
  auto probe = [](const PlanNode &node) { return node.probe ? node.probe : std::numeric_limits<int>::max(); };
  int ofA = probe(a), ofB = probe(b);
  return std::tie(ofA, a.bound, a.turn, a.text, a.id) < std::tie(ofB, b.bound, b.turn, b.text, b.id);
}

/// Probes up to this number are opened even if a plan already fits.
static constexpr int lastOwnProbe = 4;

namespace {
/// The nodes that are not opened yet.
class OpenNodes {
public:
  OpenNodes(std::vector<PlanNode> roots, const Incumbent &incumbent) : heap(std::move(roots)), incumbent(incumbent) {
    std::make_heap(heap.begin(), heap.end(), isLater);
  }

  void push(PlanNode node) {
    heap.push_back(std::move(node));
    std::push_heap(heap.begin(), heap.end(), isLater);
  }
  PlanNode pop() {
    std::pop_heap(heap.begin(), heap.end(), isLater);
    PlanNode node = std::move(heap.back());
    heap.pop_back();
    return node;
  }
  const PlanNode &front() const { return heap.front(); }
  /// Removes nodes from the front that need not be opened. Returns whether a node is left that has to be opened.
  bool isLeft();
  /// Records that a plan of this chain fits, so that its slower plans need not be opened.
  void settle(const std::string &chain) { settled.insert(chain); }
  /// Adds the nodes again that `settle` removed.
  void unsettle();
  /// A lower bound on the cost of all plans in the remaining nodes; 0 if no node is left.
  double bound() const;

private:
  static bool isLater(const PlanNode &a, const PlanNode &b) { return comesBefore(b, a); }

  std::vector<PlanNode> heap;
  const Incumbent &incumbent;
  std::set<std::string> settled;   ///< chains of which a plan fits
  std::vector<PlanNode> ofSettled; ///< slower nodes of these chains
};
} // namespace

/// A probe is dropped if a plan already fits, or if the search could stop at the probe's bound. No plan is lost,
/// because another node has the same plan. A node whose chain is settled is kept aside, in case the plan that fits is
/// refuted later.
bool OpenNodes::isLeft() {
  while (!heap.empty()) {
    const PlanNode &next = front();
    bool isDone = incumbent.isDone(next.bound);
    bool isSpare = next.probe && ((next.probe > lastOwnProbe && incumbent.best()) || isDone);
    bool isSettled = !next.chain.empty() && settled.count(next.chain);
    if (!isSpare && !isSettled)
      return !isDone;
    if (PlanNode node = pop(); !isSpare)
      ofSettled.push_back(std::move(node));
  }
  return false;
}

/// After a plan was refuted, its chain is not settled any more, so the nodes that were kept aside come back.
void OpenNodes::unsettle() {
  settled.clear();
  for (const FoundPlan &plan : incumbent.fitting())
    settle(plan.node.chain);
  for (PlanNode &node : std::exchange(ofSettled, {}))
    push(std::move(node));
}

double OpenNodes::bound() const {
  double least = 0;
  for (const PlanNode &node : heap)
    if (!node.probe)
      least = least > 0 ? std::min(least, node.bound) : node.bound;
  return least;
}

/// Each turn takes the first nodes of the heap as a round, opens them, and offers their prices to the incumbent. If
/// nothing is left, the incumbent is confirmed. If the incumbent is refuted, nodes that it had settled come back.
SearchResult pc::searchPlans(std::vector<PlanNode> roots, Incumbent &incumbent, llvm::function_ref<bool()> goesOn,
                             NodeOpener &opener) {
  OpenNodes nodes(std::move(roots), incumbent);
  SearchResult result;
  auto mayCompile = [&] { return incumbent.compiled() < incumbent.limits.compositions && goesOn(); };
  // The best plan is refuted if, compiled whole, it does not fit or takes so long that another plan may be better.
  auto isRefuted = [&] {
    if (!incumbent.best() || !mayCompile())
      return false;
    FoundPlan known = *incumbent.best();
    bool fits = opener.confirm(known);
    LLVM_DEBUG(llvm::dbgs() << (fits ? "confirmed " : "refuted ") << known.trial.seconds << " s " << known.trial.bytes
                            << " bytes: " << known.node.text << "\n");
    if (fits) {
      incumbent.confirm(known.trial);
      return nodes.isLeft();
    }
    incumbent.refute();
    result.tooLarge.push_back(std::move(known));
    nodes.unsettle();
    return true;
  };
  while (true) {
    if (!nodes.isLeft()) {
      if (!isRefuted())
        break;
      continue;
    }
    if (!mayCompile())
      break;
    std::vector<PlanNode> round;
    auto most = std::min(incumbent.limits.width, incumbent.limits.compositions - incumbent.compiled());
    // Probes with the same number are opened together.
    auto isOfRound = [&] { return round.empty() || round.front().probe == nodes.front().probe; };
    while (std::ssize(round) < most && nodes.isLeft() && isOfRound())
      round.push_back(nodes.pop());
    LLVM_DEBUG(llvm::dbgs() << "round of " << round.size() << ", bound " << round.front().bound << ", enough "
                            << incumbent.enough() << ", compiled " << incumbent.compiled() << "\n");
    opener.prepare(round);
    for (const PlanNode &node : round) {
      OpenedNode opened = opener.open(node);
      incumbent.countCompositions(opened.compositions);
      for (PlanNode &inside : opened.inside) {
        inside.bound = std::max(inside.bound, node.bound);
        nodes.push(std::move(inside));
      }
      if (!opened.trial)
        continue;
      FoundPlan plan{node, *opened.trial};
      LLVM_DEBUG(llvm::dbgs() << "priced " << plan.trial.seconds << " s " << plan.trial.bytes << " bytes, bound "
                              << node.bound << ": " << node.text << "\n");
      ++result.priced;
      if (!plan.trial.isLegal) {
        ++result.refused;
      } else if (!incumbent.fits(plan.trial)) {
        result.tooLarge.push_back(std::move(plan));
      } else {
        nodes.settle(plan.node.chain);
        incumbent.offer(std::move(plan));
      }
    }
    opener.endRound(round.front());
  }
  result.bound = nodes.bound();
  result.compositions = incumbent.compiled();
  result.fitting.assign(incumbent.fitting().begin(), incumbent.fitting().end());
  llvm::sort(result.fitting, [&](const FoundPlan &a, const FoundPlan &b) { return incumbent.isBetter(a, b); });
  llvm::sort(result.tooLarge, [](const FoundPlan &a, const FoundPlan &b) {
    return std::tie(a.trial.bytes, a.node.text) < std::tie(b.trial.bytes, b.node.text);
  });
  return result;
}
