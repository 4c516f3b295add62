//===- DataParallel.cpp - Split the batch, sum the gradients -------------------------------===//
// Reference: S. Li et al., "PyTorch Distributed: experiences on accelerating data parallel training", VLDB 2020.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_DATAPARALLEL
#include "pc/Tactics/Passes.h"

#include "Tactics.h"

using namespace mlir;
using namespace pc;

/// Inputs and caches are split by batch and all other leaves are whole. Propagation then inserts the sums of gradients.
LogicalResult pc::placeData(ModuleOp module, StringRef tactic, StringAttr axis) {
  Seeds seeds(tactic, axis, AxisOrder(module));
  seeds.order.setData(axis);
  seeds.must.insert("batch");
  seeds.may.insert("layers"); // dims of stacks that an optimizer multiplies
  seeds.leaf = [&](Operation *leaf) -> SmallVector<AxisState, 2> {
    return {isa<InputOp, StateOp>(leaf) ? splitByName(leaf, seeds.must) : AxisState::whole()};
  };
  return propagate(module, seeds);
}

/// The values with one number per token that pass through the root: the addends of the loss, and in the backward pass
/// their gradients, which are the first values that are not scalars.
static llvm::DenseSet<Value> findLossTerms(ModuleOp module) {
  llvm::DenseSet<Value> terms;
  auto rankOf = [](Value value) { return cast<RankedTensorType>(value.getType()).getRank(); };
  // The terms are the values from which scalar ops compute the loss.
  module.walk([&](OutputOp output) {
    if (output.getKind() != OutputKind::Loss)
      return;
    Value value = output.getValue();
    if (auto accumulate = value.getDefiningOp<AccumulateOp>())
      value = accumulate.getBody().front().getTerminator()->getOperand(cast<OpResult>(value).getResultNumber());
    while (rankOf(value) == 0 && isa_and_nonnull<EinsumOp, ScaleOp>(value.getDefiningOp()))
      value = value.getDefiningOp()->getOperand(0);
    if (rankOf(value))
      terms.insert(value);
  });
  // Backward: goes from the seed through scalars to the first values that are not scalars.
  module.walk([&](SeedOp seed) {
    SmallVector<Value> scalars{seed.getValue()};
    while (!scalars.empty())
      for (Operation *user : scalars.pop_back_val().getUsers())
        for (Value result : user->getResults())
          if (rankOf(result))
            terms.insert(result);
          else
            scalars.push_back(result);
  });
  return terms;
}

/// Leaves are rooted. All values with the batch are split, except for the terms of the loss, which go through the root.
LogicalResult pc::placeNaiveData(ModuleOp module, StringRef tactic, StringAttr axis) {
  WalkResult caches =
      module.walk([](StateOp state) { return state.getCache() ? WalkResult::interrupt() : WalkResult::advance(); });
  if (caches.wasInterrupted())
    return module.emitError() << tactic
                              << ": mode=naive would send the caches of a program that generates; use mode=ddp";
  Seeds seeds(tactic, axis, AxisOrder(module));
  seeds.order.setRooted(axis);
  seeds.must.insert("batch");
  seeds.rooted = true;
  seeds.instead = "values on the root rank only cannot be scattered along a dim that another axis gathers, such as the "
                  "batch with 3D tensor parallelism; use mode=ddp";
  llvm::DenseSet<Value> terms = findLossTerms(module);
  // The terms of the loss are sums over the batch, which the root rank adds up.
  seeds.binds = [&](const PlacementValue &v) { return !v.names.empty() && !terms.contains(v.value); };
  seeds.leaf = [](Operation *leaf) -> SmallVector<AxisState, 2> {
    if (isa<ParameterOp, StateOp, InputOp>(leaf))
      return {AxisState::root()};
    return {AxisState::whole(), AxisState::root()};
  };
  seeds.pin = [&](const PlacementValue &v) {
    return terms.contains(v.value) ? std::optional(AxisState::root()) : std::nullopt;
  };
  if (failed(propagate(module, seeds)))
    return failure();
  // Parameters do not change between microbatches: their broadcasts move before the accumulation.
  SmallVector<BroadcastOp> broadcasts;
  module.walk([&](BroadcastOp broadcast) { broadcasts.push_back(broadcast); });
  for (BroadcastOp broadcast : broadcasts)
    if (auto accumulate = dyn_cast<AccumulateOp>(broadcast->getParentOp());
        accumulate && broadcast.getX().getParentBlock() != broadcast->getBlock())
      broadcast->moveBefore(accumulate);
  return success();
}

namespace {
struct DataParallel : pc::impl::DataParallelBase<DataParallel> {
  using DataParallelBase::DataParallelBase;

  void runOnOperation() override {
    constexpr StringRef tactic = "pc-data-parallel";
    if (mode != "ddp" && mode != "naive") {
      getOperation().emitError() << tactic << ": mode '" << mode << "' is unknown; expected ddp or naive";
      return signalPassFailure();
    }
    StringAttr name = freshAxis(getOperation(), tactic, axis);
    if (!name)
      return signalPassFailure();
    auto place = mode == "naive" ? placeNaiveData : placeData;
    if (failed(place(getOperation(), tactic, name)))
      signalPassFailure();
  }
};
} // namespace
