//===- Search.cpp - The best of many plans, with a proof ----------------------------------===//
#include "pc/Search/Search.h"
#include "pc/Cost/Cost.h"
#include "pc/IR/Liveness.h"

#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>

using namespace mlir;
using namespace pc;

StepWork StepWork::of(ModuleOp step) {
  StepWork work;
  step.walk([&](Operation *op) {
    if (auto parameter = dyn_cast<ParameterOp>(op))
      work.parameterBytes += static_cast<double>(byteSize(parameter.getValue().getType()));
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
  if (shape.stages < 2 || shape.splitsWeightGradients)
    return least;
  // With m microbatches and the work t of stages on one of them, stage s ends after t_1 + ... + t_(s-1) + m t_s. The
  // longest of these is shortest where all are equal: with t_(s+1) = t_s (m-1) / m.
  auto rounds = static_cast<double>(shape.microbatches * shape.chunks), stages = static_cast<double>(shape.stages);
  return std::max(least, products * stages / (rounds * (1 - std::pow(1 - 1 / rounds, stages))));
}

SearchResult pc::searchPlans(llvm::ArrayRef<PlanCandidate> candidates, int64_t limit, int64_t most,
                             llvm::function_ref<bool()> goesOn, llvm::function_ref<PlanTrial(size_t)> tryPlan) {
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), 0);
  llvm::sort(order, [&](size_t a, size_t b) {
    const PlanCandidate &x = candidates[a], &y = candidates[b];
    return std::tie(x.bound, x.level, x.axes, x.text) < std::tie(y.bound, y.level, y.axes, y.text);
  });
  auto isBetter = [&](const FoundPlan &a, const FoundPlan &b) {
    if (std::abs(a.trial.seconds - b.trial.seconds) > 1e-9 * std::max(a.trial.seconds, b.trial.seconds))
      return a.trial.seconds < b.trial.seconds;
    return std::tie(a.trial.bytes, candidates[a.candidate].text) <
           std::tie(b.trial.bytes, candidates[b.candidate].text);
  };
  SearchResult result;
  std::optional<FoundPlan> best;
  std::set<llvm::StringRef> settled; // chains of which a plan fits
  for (size_t next : order) {
    double bound = candidates[next].bound;
    if (best && bound >= best->trial.seconds)
      break;
    if (result.compiled == most || !goesOn()) {
      result.gap = best ? 1 - bound / best->trial.seconds : 1;
      break;
    }
    if (settled.count(candidates[next].chain))
      continue;
    ++result.compiled;
    FoundPlan plan{next, tryPlan(next)};
    if (!plan.trial.isLegal) {
      ++result.refused;
      continue;
    }
    if (limit > 0 && plan.trial.bytes > limit) {
      result.tooLarge.push_back(plan);
      continue;
    }
    if (!best || isBetter(plan, *best))
      best = plan;
    settled.insert(candidates[next].chain);
    result.fitting.push_back(plan);
  }
  llvm::sort(result.fitting, isBetter);
  llvm::sort(result.tooLarge, [&](const FoundPlan &a, const FoundPlan &b) {
    return std::tie(a.trial.bytes, candidates[a.candidate].text) <
           std::tie(b.trial.bytes, candidates[b.candidate].text);
  });
  return result;
}

std::vector<SmallVector<int64_t>> pc::factorizations(int64_t n, size_t count) {
  if (count == 0)
    return n == 1 ? std::vector<SmallVector<int64_t>>{{}} : std::vector<SmallVector<int64_t>>{};
  std::vector<SmallVector<int64_t>> all;
  for (int64_t first = 1; first <= n; ++first) {
    if (n % first != 0)
      continue;
    for (SmallVector<int64_t> &rest : factorizations(n / first, count - 1)) {
      rest.insert(rest.begin(), first);
      all.push_back(std::move(rest));
    }
  }
  return all;
}
