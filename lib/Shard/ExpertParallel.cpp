//===- ExpertParallel.cpp - Split the experts, and the batch everywhere else ----------------===//
// In a mixture of experts each rank has some of the experts; everywhere else it has some of the sequences. So tokens
// are gathered in front of the experts, and what the ranks' experts make of each is added up and scattered behind them;
// or, behind pc-dispatch-experts, what goes to experts and comes back is sent from rank to rank.
// References: D. Lepikhin et al., "GShard", 2020; W. Fedus et al., "Switch Transformers", 2021.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_EXPERTPARALLEL
#include "pc/Shard/Passes.h"

#include "Dispatch.h"
#include "Seeds.h"
#include "pc/Shard/KnownDims.h"

using namespace mlir;
using namespace pc;

static constexpr StringRef tactic = "pc-expert-parallel", experts = "experts", width = "expert_ffn", tokens = "batch";

bool pc::hasExperts(ModuleOp module) {
  return module
      .walk([](ParameterOp parameter) {
        return expertsDim(parameter.getDims()) >= 0 ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

namespace {
struct ExpertParallel : pc::impl::ExpertParallelBase<ExpertParallel> {
  using ExpertParallelBase::ExpertParallelBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    StringAttr name = freshAxis(module, tactic, axis);
    if (!name || failed(checkExperts(name)))
      return signalPassFailure();
    Seeds seeds(tactic, name, AxisOrder(module));
    seeds.order.setExperts(name);
    llvm::StringSet<> ofExperts, ofTokens;
    ofExperts.insert(experts);
    ofTokens.insert(tokens);
    seeds.must.insert(experts);
    seeds.must.insert(tokens);
    seeds.only[Section::Accumulate] = seeds.must;
    seeds.only[Section::Optimizer] = ofExperts;
    // What a router makes is small, and chooses among all experts.
    seeds.binds = [](const PlacementValue &v) { return v.find(experts) < 0 || v.find(width) >= 0; };
    seeds.leaf = [&](Operation *leaf) -> SmallVector<AxisState, 2> {
      if (isa<InputOp>(leaf))
        return {splitByName(leaf, ofTokens)};
      int64_t dim = isa<ParameterOp, StateOp>(leaf) ? expertsDim(leafDims(leaf)) : -1;
      return {dim >= 0 ? AxisState::split(dim) : AxisState::whole()};
    };
    seeds.fixed = isWeight;
    // Tokens lie outside of what is dispatched and combined; between both the experts do.
    seeds.pin = [](const PlacementValue &v) -> std::optional<AxisState> {
      auto isCombined = [](Operation *user) { return isCombine(dyn_cast<EinsumOp>(user)); };
      bool isOutside = isDispatch(v.value.getDefiningOp<EinsumOp>()) || llvm::any_of(v.value.getUsers(), isCombined);
      int64_t dim = isOutside ? v.find(tokens) : -1;
      return dim >= 0 ? std::optional(AxisState::split(dim)) : std::nullopt;
    };
    if (failed(propagate(module, seeds)))
      signalPassFailure();
  }

  /// There are experts, as many on each rank.
  LogicalResult checkExperts(StringAttr name) {
    if (!hasExperts(getOperation()))
      return getOperation().emitError() << tactic << ": the model has no mixture of experts";
    int64_t ranks = meshOf(getOperation()).size(name);
    WalkResult uneven = getOperation().walk([&](ParameterOp parameter) -> WalkResult {
      int64_t dim = expertsDim(parameter.getDims());
      int64_t size = dim < 0 ? 0 : cast<RankedTensorType>(parameter.getValue().getType()).getDimSize(dim);
      if (size % ranks)
        return parameter.emitError() << tactic << ": '" << sourceName(parameter) << "': " << size
                                     << " experts cannot be split over " << name.getValue() << "=" << ranks;
      return WalkResult::advance();
    });
    return failure(uneven.wasInterrupted());
  }
};
} // namespace
