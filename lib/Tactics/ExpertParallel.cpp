//===- ExpertParallel.cpp - Split the experts, and the batch everywhere else ----------------===//
// In a mixture of experts each rank has some of the experts; everywhere else it has some of the sequences. So tokens
// are gathered before the experts, and the results of the ranks' experts are reduced and scattered after them. After
// pc-dispatch-experts, routed tokens and their results are instead sent from rank to rank. Tactics that split something
// else outside of experts on their axis split experts in the same way (`splitExperts`). References: D. Lepikhin et al.,
// "GShard", 2020; W. Fedus et al., "Switch Transformers", 2021.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_EXPERTPARALLEL
#include "pc/Tactics/Passes.h"

#include "Tactics.h"
#include "pc/IR/Dispatch.h"
#include "pc/Shard/KnownDims.h"

using namespace mlir;
using namespace pc;

static constexpr StringRef experts = "experts", width = "expert_ffn";

bool pc::hasExperts(ModuleOp module) {
  return module
      .walk([](ParameterOp parameter) {
        return expertsDim(parameter.getDims()) >= 0 ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

/// Checks that there are experts, and equal numbers on each rank; otherwise emits an error.
static LogicalResult checkExperts(ModuleOp module, const Seeds &seeds) {
  if (!hasExperts(module))
    return module.emitError() << seeds.tactic << ": the model is not a mixture of experts";
  int64_t ranks = meshOf(module).size(seeds.axis);
  WalkResult uneven = module.walk([&](ParameterOp parameter) -> WalkResult {
    int64_t dim = expertsDim(parameter.getDims());
    int64_t size = dim < 0 ? 0 : cast<RankedTensorType>(parameter.getValue().getType()).getDimSize(dim);
    if (size % ranks)
      return parameter.emitError() << seeds.tactic << ": '" << sourceName(parameter) << "': " << size
                                   << " experts cannot be split over " << seeds.axis.getValue() << "=" << ranks;
    return WalkResult::advance();
  });
  return failure(uneven.wasInterrupted());
}

/// Adds the dim of experts to the names that must be split, and keeps the functions that the seeds had, which still
/// apply to everything outside of the experts.
LogicalResult pc::splitExperts(ModuleOp module, Seeds &seeds, StringRef tokens) {
  if (failed(checkExperts(module, seeds)))
    return failure();
  seeds.must.insert(experts);
  llvm::StringSet<> ofExperts;
  ofExperts.insert(experts);
  ofExperts.insert("layers"); // dims of stacks that an optimizer multiplies
  seeds.only.try_emplace(Section::Accumulate, seeds.must);
  seeds.only.try_emplace(Section::Optimizer, ofExperts);
  for (auto &[section, names] : seeds.only)
    names.insert(experts);
  // Values of a router are small, and cover all experts; combined results may be split along tokens.
  seeds.binds = [others = seeds.binds](const PlacementValue &v) {
    return others(v) && (v.find(experts) < 0 || v.find(width) >= 0) && !isCombine(v.value.getDefiningOp<EinsumOp>());
  };
  auto dimOf = [](Operation *leaf) {
    return isa_and_nonnull<ParameterOp, StateOp>(leaf) ? expertsDim(leafDims(leaf)) : -1;
  };
  seeds.leaf = [=, others = seeds.leaf](Operation *leaf) -> SmallVector<AxisState, 2> {
    int64_t dim = dimOf(leaf);
    return dim >= 0 ? SmallVector<AxisState, 2>{AxisState::split(dim)} : others(leaf);
  };
  seeds.fixed = [=, others = seeds.fixed](const PlacementValue &v) {
    return others(v) || dimOf(source(v.value).getDefiningOp()) >= 0;
  };
  if (tokens.empty())
    return success();
  seeds.order.setExperts(seeds.axis);
  // Values are split by tokens outside of dispatch and combine, and by experts between them.
  seeds.pin = [tokens = tokens.str(), others = seeds.pin](const PlacementValue &v) -> std::optional<AxisState> {
    auto isCombined = [](Operation *user) { return isCombine(dyn_cast<EinsumOp>(user)); };
    bool isOutside = isDispatch(v.value.getDefiningOp<EinsumOp>()) || llvm::any_of(v.value.getUsers(), isCombined);
    int64_t dim = isOutside ? v.find(tokens) : -1;
    return dim >= 0 ? std::optional(AxisState::split(dim)) : others(v);
  };
  return success();
}

namespace {
/// The pass pc-expert-parallel. It splits inputs by batch and weights of experts by expert; propagation finds the moves
/// of tokens.
struct ExpertParallel : pc::impl::ExpertParallelBase<ExpertParallel> {
  using ExpertParallelBase::ExpertParallelBase;

  void runOnOperation() override {
    constexpr StringRef tactic = "pc-expert-parallel", tokens = "batch";
    StringAttr name = freshAxis(getOperation(), tactic, axis);
    if (!name)
      return signalPassFailure();
    Seeds seeds(tactic, name, AxisOrder(getOperation()));
    llvm::StringSet<> ofTokens;
    ofTokens.insert(tokens);
    seeds.must = ofTokens;
    seeds.leaf = [&](Operation *leaf) -> SmallVector<AxisState, 2> {
      return {isa<InputOp, StateOp>(leaf) ? splitByName(leaf, ofTokens) : AxisState::whole()};
    };
    seeds.fixed = isWeight;
    if (failed(splitExperts(getOperation(), seeds, tokens)) || failed(propagate(getOperation(), seeds)))
      signalPassFailure();
  }
};
} // namespace
