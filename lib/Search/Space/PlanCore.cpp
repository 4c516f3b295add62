//===- PlanCore.cpp - The common part of many plans -----------------------------------------===//
// Removes tactics and axes that only divide sequences or layers, and keeps those that change the work of a rank in one
// layer.
//===----------------------------------------------------------------------------------------===//
#include "PlanCore.h"

#include "llvm/ADT/StringExtras.h"
#include <set>

using namespace mlir;
using namespace pc;

/// Returns true if a tactic only divides sequences, layers, or the work that a step does once, and not the work of a
/// microbatch.
static bool isOuter(const Tactic &tactic, bool any) {
  const TacticInfo *row = tactic.info();
  if (auto zero = tactic.as<ZeroTactic>(); zero && zero->stage() >= 2)
    return any; // sums gradients, or gathers parameters, for each microbatch
  return row && (row->splitsBatch || row->shardsParameters || row->phase == Phase::Staged);
}

/// The number of ranks that split the sequences of a microbatch in forms of tensor parallelism.
static int64_t sequenceRanks(const Plan &plan) {
  int64_t ranks = 1;
  for (const Tactic &tactic : plan.tactics)
    for (StringRef axis : sequenceAxes(tactic))
      ranks *= std::max<int64_t>(plan.sizeOf(axis), 1);
  return ranks;
}

/// Removes the outer axes, which divide only sequences or layers, and the tactics of these axes. The batch of the core
/// is the part of a microbatch that the remaining ranks have.
PlanCore PlanCore::of(const Plan &plan, int64_t batch, bool any, bool withData) {
  PlanCore core;
  std::set<std::string> outer, data;
  for (const Tactic &tactic : plan.tactics)
    for (StringRef axis : tactic.axes()) {
      if (isOuter(tactic, any || !withData))
        outer.insert(axis.str());
      if (tactic.info() && tactic.info()->phase != Phase::Staged)
        data.insert(axis.str());
    }
  // The number of parts into which microbatches and removed data axes divide the batch.
  int64_t parts = plan.microbatches;
  for (const auto &[axis, size] : plan.mesh) {
    if (!outer.count(axis))
      core.plan.mesh.push_back({axis, size});
    else if (data.count(axis))
      parts *= size;
  }
  for (const Tactic &tactic : plan.tactics) {
    auto axes = tactic.axes();
    llvm::append_range(axes, tactic.list("axes"));
    if (!tactic.as<OffloadTactic>() && // only takes more time
        llvm::none_of(axes, [&](StringRef axis) { return outer.count(axis.str()); }))
      core.plan.tactics.push_back(tactic);
  }
  // Two microbatches show what a sum over microbatches costs; more add nothing new.
  core.plan.microbatches = any ? 1 : std::min<int64_t>(plan.microbatches, 2);
  core.batch = batch;
  if (!any) {
    int64_t atOnce = batch % parts ? 0 : batch / parts;
    core.batch = atOnce % sequenceRanks(core.plan) ? 0 : atOnce * core.plan.microbatches;
  }
  return core;
}

/// Removes an axis from the mesh and returns its size.
static int64_t takeAxis(Plan &plan, StringRef axis) {
  int64_t size = std::max<int64_t>(plan.sizeOf(axis), 1);
  llvm::erase_if(plan.mesh, [&](const auto &one) { return one.first == axis; });
  return size;
}

/// Replaces a form of tensor parallelism that has a data axis by the same form without one (`besides`).
Plan pc::withoutInnerData(Plan plan, int64_t &ranks) {
  for (Tactic &tactic : plan.tactics) {
    const TacticInfo *row = tactic.info();
    const TacticForm *form = row ? row->formOf(tactic) : nullptr;
    if (!form || form->dataAxis < 0)
      continue;
    SmallVector<StringRef> axes = tactic.axes();
    ranks *= takeAxis(plan, axes[form->dataAxis]);
    axes.erase(axes.begin() + form->dataAxis);
    tactic = tactic.with("axis", llvm::join(axes, ",")).with(row->formOption, form->besides);
  }
  return plan;
}

/// Removes these tactics, and their axes from the mesh.
Plan pc::withoutTokenSharers(Plan plan, int64_t &ranks) {
  llvm::erase_if(plan.tactics, [&](const Tactic &tactic) {
    const TacticInfo *row = tactic.info();
    if (!row || !row->sharesTokens)
      return false;
    for (StringRef axis : tactic.axes())
      ranks *= takeAxis(plan, axis);
    return true;
  });
  return plan;
}

/// Returns first the core without data ranks and without ranks that share tokens, then the core without data ranks
/// only. A core is left out if its ranks do not divide the sequences.
SmallVector<PlanCore, 2> PlanCore::bareOf(const Plan &plan, int64_t batch) {
  int64_t dataRanks = 1;
  Plan withTokens = withoutInnerData(plan, dataRanks);
  int64_t sharers = dataRanks;
  Plan bare = withoutTokenSharers(withTokens, sharers);
  SmallVector<PlanCore, 2> cores;
  auto add = [&](const Plan &rest, int64_t ranks) {
    PlanCore core = of(rest, batch % ranks ? 0 : batch / ranks, false, /*withData=*/false);
    if (ranks > 1 && core.batch)
      cores.push_back(std::move(core));
  };
  add(bare, sharers);
  if (sharers > dataRanks)
    add(withTokens, dataRanks);
  return cores;
}

std::string PlanCore::key() const { return plan.key() + " " + std::to_string(batch); }
