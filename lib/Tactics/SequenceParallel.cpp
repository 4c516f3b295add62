//===- SequenceParallel.cpp - Split the sequence where tensor parallelism leaves activations whole ---===//
// This tactic splits the residual stream and norms along the sequence. An all_gather before each pair of linears and a
// reduce_scatter after it replace the all_reduce. Reference: V. Korthikanti et al., "Reducing activation recomputation
// in large transformer models", MLSys 2023.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_SEQUENCEPARALLEL
#include "pc/Tactics/Passes.h"

#include "Tactics.h"
#include "llvm/ADT/DenseMap.h"

using namespace mlir;
using namespace pc;

static constexpr StringRef tactic = "pc-sequence-parallel";

namespace {

/// The states of the leaves on one axis.
struct Weights {
  StringAttr axis;
  llvm::DenseMap<Operation *, AxisState> states;
  llvm::StringSet<> names; ///< names of the dims that the axis splits
};

/// The pass pc-sequence-parallel. It removes the axis of tensor parallelism from the program and places it again, with
/// the same weights and split activations.
struct SequenceParallel : pc::impl::SequenceParallelBase<SequenceParallel> {
  using SequenceParallelBase::SequenceParallelBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<Weights> all;
    MeshAttr mesh = meshOf(module);
    for (StringAttr name : mesh ? mesh.getNames() : ArrayRef<StringAttr>())
      // Grouped-query attention may have split the axis in two.
      if (StringRef(axis) == name || name.getValue() == axis + ".0" || name.getValue() == axis + ".1")
        all.push_back(weightsOn(module, name));
    if (all.empty() || llvm::any_of(all, [](const Weights &weights) { return weights.names.empty(); })) {
      module.emitError() << tactic << ": axis '" << axis << "' splits no weights; run pc-tensor-parallel over it first";
      return signalPassFailure();
    }
    for (const Weights &weights : all)
      unplace(module, weights.axis);
    llvm::DenseSet<Value> separated;
    if (regather)
      separated = separateLinearOperands(module);
    for (const Weights &weights : all)
      if (failed(place(module, weights, separated)))
        return signalPassFailure();
  }

  /// Reads from the placed program how weights and states are split over the axis.
  static Weights weightsOn(ModuleOp module, StringAttr axis) {
    Weights weights;
    weights.axis = axis;
    module.walk([&](Operation *op) {
      if (!isa<ParameterOp, StateOp>(op))
        return;
      AxisState state = placement(op->getResult(0)).state(axis);
      weights.states[op] = state;
      if (state.isSplit())
        weights.names.insert(cast<StringAttr>(leafDims(op)[state.dim()]));
    });
    return weights;
  }

  /// Places the axis again: weights as before, and activations between the linears split along the sequence.
  static LogicalResult place(ModuleOp module, const Weights &weights, const llvm::DenseSet<Value> &separated) {
    Seeds seeds(tactic, weights.axis, AxisOrder(module));
    seeds.must = weights.names;
    seeds.may.insert("sequence");
    seeds.only[Section::Accumulate] = seeds.only[Section::Optimizer] = seeds.must;
    seeds.leaf = [&](Operation *leaf) -> SmallVector<AxisState, 2> {
      auto it = weights.states.find(leaf);
      return {it == weights.states.end() ? AxisState::whole() : it->second};
    };
    seeds.fixed = [&](const PlacementValue &v) { return isWeight(v) || separated.contains(v.value); };
    seeds.pin = [](const PlacementValue &v) -> std::optional<AxisState> {
      Operation *op = v.value.getDefiningOp();
      if (!v.isActivation("embed") || isa_and_nonnull<CopyOp>(op))
        return std::nullopt;
      // Recomputed norms and gradients of norms are split explicitly. If they stayed whole, their moves would send the
      // same number of bytes, and the sums of their weights' gradients would not be needed, so the search would leave
      // them and everything between them whole.
      bool isNorm = isa_and_nonnull<LayerNormOp, RMSNormOp, LayerNormGradOp, RMSNormGradOp>(op);
      if (v.section != Section::Forward && !(v.section == Section::Backward && isNorm))
        return std::nullopt;
      return AxisState::split(v.find("sequence"));
    };
    if (weights.names.contains("experts") && failed(splitExperts(module, seeds, "sequence")))
      return failure();
    return propagate(module, seeds);
  }
};
} // namespace
