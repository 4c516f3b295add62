//===- BestFirst.cpp - The best of many plans, with a proof ----------------------------------===//
// searchPlans opens nodes, which are plans or sets of plans, in the order of their lower bounds. It ends when no node
// that is left has a bound below the best plan that fits, but for the margins in SearchLimits. It knows nothing of
// programs: `open` prices plans, `confirm` compiles them. Also here: lower bounds from the FLOPs and bytes of a step.
//===-----------------------------------------------------------------------------===//
#include "pc/Cost/Cost.h"
#include "pc/IR/Liveness.h"
#include "pc/Search/Search.h"

#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

using namespace mlir;
using namespace pc;

StepWork StepWork::of(ModuleOp step) {
  StepWork work;
  step.walk([&](Operation *op) {
    if (auto parameter = dyn_cast<ParameterOp>(op))
      work.parameterBytes += static_cast<double>(byteSize(parameter.getValue().getType()));
    if (auto state = dyn_cast<StateOp>(op))
      work.stateBytes += static_cast<double>(byteSize(state.getValue().getType()));
    double flops = isa<FusionOp>(op) ? 0 : flopsOf(op);
    if (flops == 0)
      return;
    if (isCausalAttention(op).value_or(false))
      flops /= 2;
    if (auto loop = op->getParentOfType<AccumulateOp>())
      flops *= static_cast<double>(loop.getMicrobatches());
    work.flops += flops;
    work.bf16 |= getElementTypeOrSelf(op->getOperand(0)).isBF16();
  });
  return work;
}

double pc::leastSeconds(const StepWork &work, const PlanShape &shape, const MachineModel &machine) {
  double rate = work.bf16 ? std::max(machine.bf16Flops, machine.f32Flops) : machine.f32Flops;
  auto ranks = static_cast<double>(shape.ranks);
  double products = work.flops / rate / ranks;
  // Some rank has its share of both; it reads and writes its parameters.
  double least = products + 2 * work.parameterBytes / machine.memoryBandwidth / ranks;
  return std::max(least, leastPipelineSeconds(products * static_cast<double>(shape.stages), shape,
                                              shape.splitsWeightGradients ? leastForwardShare : 1));
}

double pc::leastPipelineSeconds(double seconds, const PlanShape &shape, double waitShare) {
  // With m microbatches and the work t of stages on one of them, of which the share f comes before the next stage's,
  // stage s ends after f (t_1 + ... + t_(s-1)) + m t_s. The longest of these is shortest where all are equal: with
  // t_(s+1) = t_s (m-f) / m.
  auto rounds = static_cast<double>(shape.microbatches * shape.chunks), stages = static_cast<double>(shape.stages);
  if (shape.stages < 2)
    return seconds;
  return seconds / rounds * waitShare / (1 - std::pow(1 - waitShare / rounds, stages));
}

namespace {

/// Whether `a` is opened before `b`.
bool comesBefore(const PlanNode &a, const PlanNode &b) {
  auto turn = [](const PlanNode &node) { return node.probe ? node.probe : std::numeric_limits<int>::max(); };
  int ofA = turn(a), ofB = turn(b);
  return std::tie(ofA, a.bound, b.atOnce, a.level, a.axes, a.text, a.id) <
         std::tie(ofB, b.bound, a.atOnce, b.level, b.axes, b.text, b.id);
}

bool isBetter(const FoundPlan &a, const FoundPlan &b) {
  if (std::abs(a.trial.seconds - b.trial.seconds) > 1e-9 * std::max(a.trial.seconds, b.trial.seconds))
    return a.trial.seconds < b.trial.seconds;
  return std::tie(a.trial.bytes, a.node.text) < std::tie(b.trial.bytes, b.node.text);
}

bool isSmaller(const FoundPlan &a, const FoundPlan &b) {
  return std::tie(a.trial.bytes, a.node.text) < std::tie(b.trial.bytes, b.node.text);
}

} // namespace

/// Probes up to this one are looked at even where a plan fits already.
static constexpr int lastOwnProbe = 4;

SearchResult pc::searchPlans(std::vector<PlanNode> roots, const SearchLimits &limits, llvm::function_ref<bool()> goesOn,
                             llvm::function_ref<std::vector<OpenedNode>(ArrayRef<PlanNode>)> open,
                             llvm::function_ref<bool(FoundPlan &)> confirm) {
  auto later = [](const PlanNode &a, const PlanNode &b) { return comesBefore(b, a); };
  std::vector<PlanNode> heap = std::move(roots);
  std::make_heap(heap.begin(), heap.end(), later);
  SearchResult result;
  std::optional<FoundPlan> best;
  double confirmed = 0;            // seconds of it, if they were asked for
  std::set<std::string> settled;   // chains of which a plan fits
  std::vector<PlanNode> ofSettled; // nodes of these, which are dearer
  auto isDone = [&](double bound) {
    if (!best)
      return false;
    double settle = result.compositions >= limits.settleAfter ? limits.settle : 0, seconds = best->trial.seconds;
    return bound >= std::max((1 - settle) * seconds, (1 - limits.gap) * confirmed);
  };
  // Takes nodes that say nothing new off the front; whether one is left that has to be opened.
  auto isLeft = [&] {
    while (!heap.empty()) {
      const PlanNode &next = heap.front();
      bool isSpare = next.probe && ((next.probe > lastOwnProbe && best) || isDone(next.bound));
      bool isSettled = !next.chain.empty() && settled.count(next.chain);
      if (!isSpare && !isSettled)
        return !isDone(next.bound);
      std::pop_heap(heap.begin(), heap.end(), later);
      if (!isSpare)
        ofSettled.push_back(std::move(heap.back()));
      heap.pop_back();
    }
    return false;
  };
  // Whether a plan that was thought to be the best one does not fit, or takes so long that another may be better.
  auto isRefuted = [&] {
    if (!best || result.compositions >= limits.compositions || !goesOn())
      return false;
    FoundPlan known = *best;
    if (confirm(known)) {
      confirmed = known.trial.seconds;
      return isLeft();
    }
    confirmed = 0;
    llvm::erase_if(result.fitting, [&](const FoundPlan &plan) { return plan.node.id == best->node.id; });
    result.tooLarge.push_back(std::move(known));
    best.reset();
    settled.clear();
    for (const FoundPlan &plan : result.fitting) {
      settled.insert(plan.node.chain);
      if (!best || isBetter(plan, *best))
        best = plan;
    }
    for (PlanNode &node : std::exchange(ofSettled, {})) {
      heap.push_back(std::move(node));
      std::push_heap(heap.begin(), heap.end(), later);
    }
    return true;
  };
  while (true) {
    if (!isLeft()) {
      if (!isRefuted())
        break;
      continue;
    }
    if (result.compositions >= limits.compositions || !goesOn())
      break;
    std::vector<PlanNode> nodes;
    auto most = std::min<int64_t>(limits.width, limits.compositions - result.compositions);
    // Probes of one turn are opened together, and others after them.
    auto isOfTurn = [&] { return nodes.empty() || nodes.front().probe == heap.front().probe; };
    while (std::ssize(nodes) < most && isLeft() && isOfTurn()) {
      std::pop_heap(heap.begin(), heap.end(), later);
      nodes.push_back(std::move(heap.back()));
      heap.pop_back();
    }
    std::vector<OpenedNode> opened = open(nodes);
    for (auto [node, now] : llvm::zip_equal(nodes, opened)) {
      result.compositions += now.compositions;
      for (PlanNode &inside : now.inside) {
        inside.bound = std::max(inside.bound, node.bound);
        heap.push_back(std::move(inside));
        std::push_heap(heap.begin(), heap.end(), later);
      }
      if (!now.trial)
        continue;
      FoundPlan plan{std::move(node), *now.trial};
      ++result.priced;
      if (!plan.trial.isLegal) {
        ++result.refused;
      } else if (limits.bytes > 0 && plan.trial.bytes > limits.bytes) {
        result.tooLarge.push_back(std::move(plan));
      } else {
        if (!best || isBetter(plan, *best)) {
          best = plan;
          confirmed = 0;
        }
        settled.insert(plan.node.chain);
        result.fitting.push_back(std::move(plan));
      }
    }
  }
  for (const PlanNode &node : heap)
    if (!node.probe)
      result.bound = result.bound > 0 ? std::min(result.bound, node.bound) : node.bound;
  llvm::sort(result.fitting, isBetter);
  llvm::sort(result.tooLarge, isSmaller);
  return result;
}

std::vector<SmallVector<int64_t>> pc::factorizations(int64_t n, size_t count,
                                                     llvm::function_ref<bool(int64_t)> isGood) {
  if (count == 0)
    return n == 1 ? std::vector<SmallVector<int64_t>>{{}} : std::vector<SmallVector<int64_t>>{};
  if (count == 1)
    return {{n}};
  std::vector<SmallVector<int64_t>> all;
  SmallVector<int64_t> divisors;
  for (int64_t small = 1; small * small <= n; ++small)
    if (n % small == 0)
      divisors.append({small, n / small});
  llvm::erase_if(divisors, [&](int64_t divisor) { return !isGood(divisor); });
  llvm::sort(divisors);
  divisors.erase(llvm::unique(divisors), divisors.end());
  for (int64_t first : divisors)
    for (SmallVector<int64_t> &rest : factorizations(n / first, count - 1, isGood)) {
      rest.insert(rest.begin(), first);
      all.push_back(std::move(rest));
    }
  return all;
}
