//===- Zero.cpp - Data parallelism without redundancy ----------------------------------------===//
// Stage 1 splits the optimizer state over the data axis, 2 also the accumulators of gradients, 3 also the parameters.
// Reference: S. Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", SC 2020;
// stage 3: Y. Zhao et al., "PyTorch FSDP: experiences on scaling fully sharded data parallel", VLDB 2023.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_ZERO
#include "pc/Tactics/Passes.h"

#include "Tactics.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Codes.h"
#include "pc/IR/NameGlobs.h"
#include "pc/IR/Parts.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace pc;

/// The dim of a parameter, or of a state of it, that is dim `dim` of the parameter; -1 if the state has no such dim.
static int64_t dimOfLeaf(Operation *leaf, ParameterOp parameter, int64_t dim) {
  auto state = dyn_cast<StateOp>(leaf);
  return state ? dimInState(state, parameter, dim) : dim;
}

AxisState pc::likeParameter(StateOp state, ParameterOp parameter, AxisState ofParameter) {
  if (!ofParameter.isSplit())
    return ofParameter;
  int64_t dim = dimInState(state, parameter, ofParameter.dim());
  return dim < 0 ? AxisState::whole() : AxisState::split(dim);
}

/// The divisible dim along which a parameter and its optimizer state (`leaves`) are sharded; whole if there is none.
/// The order of preference is: dims that no other axis splits; dims whose counterpart in the activation is split (both
/// operands of the product are then gathered along one factor, so they can be windowed together); longer dims.
static AxisState shardOf(ArrayRef<Operation *> leaves, const Seeds &seeds, MeshAttr mesh, LaterSplits later) {
  auto shape = cast<RankedTensorType>(leaves[0]->getResult(0).getType()).getShape();
  AxisState best = AxisState::whole();
  // Other axes and axes that are placed later must also be able to divide what is left of a dim.
  std::tuple<bool, bool, int64_t> bestKey; // (unsplit, meets a split activation, size)
  for (int64_t d : llvm::seq<int64_t>(0, shape.size())) {
    if (cast<StringAttr>(leafDims(leaves[0])[d]) == nameOfCodes)
      continue;
    LaterSplit split = later(cast<ParameterOp>(leaves[0]), d);
    bool legal = true, unsplit = split.ranks == 1;
    auto check = [&](Value value, int64_t own) {
      SmallVector<StringAttr> others = placement(value).axes(own);
      unsplit &= others.empty();
      legal &= cast<RankedTensorType>(value.getType()).getDimSize(own) %
                   (mesh.size(seeds.axis) * mesh.size(others) * split.ranks) ==
               0;
    };
    for (Operation *leaf : leaves)
      if (int64_t own = dimOfLeaf(leaf, cast<ParameterOp>(leaves[0]), d); own >= 0) // other states stay whole
        check(leaf->getResult(0), own);
    for (Operation *user : leaves[0]->getUsers())
      if (auto encode = dyn_cast<EncodeOp>(user)) // shards have whole blocks
        check(encode.getScales(), d);
    if (!legal)
      continue;
    std::tuple<bool, bool, int64_t> key{unsplit, split.ofActivation, shape[d]};
    if (best.isWhole() || bestKey < key)
      best = AxisState::split(d), bestKey = key;
  }
  return best;
}

bool pc::isMaster(ParameterOp parameter) {
  bool rounded = false;
  for (Operation *user : parameter->getUsers()) {
    if (isa<AccumulateOp>(user->getParentOp()))
      return false;
    rounded |= roundsOperand(user);
  }
  return rounded;
}

/// Adds the parameters that a glob of `keep` fits to `kept`.
static LogicalResult findKept(ModuleOp module, StringRef tactic, StringRef keep, llvm::DenseSet<Operation *> &kept) {
  std::string why;
  FailureOr<NameGlobs> globs = NameGlobs::parse(keep, why);
  if (failed(globs))
    return module.emitError() << tactic << ": keep: '" << keep << "' " << why;
  module.walk([&](ParameterOp parameter) {
    if (globs->fitsSome(parameter))
      kept.insert(parameter);
  });
  return globs->requireUsed(module, tactic + ": keep");
}

/// Moves the gathers of `kept` parameters before all microbatches. With one microbatch they stay before their
/// first readers.
static void gatherOnce(ModuleOp module, const llvm::DenseSet<Operation *> &kept) {
  SmallVector<AllGatherOp> gathers;
  module.walk([&](AllGatherOp gather) { gathers.push_back(gather); });
  for (AllGatherOp gather : gathers)
    if (auto accumulate = dyn_cast<AccumulateOp>(gather->getParentOp());
        accumulate && accumulate.getMicrobatches() > 1 && gather.getX().getParentBlock() != gather->getBlock() &&
        kept.contains(source(gather.getX()).getDefiningOp()))
      gather->moveBefore(accumulate);
}

/// Shards are chosen first, for each parameter with its states. Then propagation places the axis; pins keep accumulated
/// gradients and copies in the shards' placement.
LogicalResult pc::placeZero(ModuleOp module, StringRef tactic, StringAttr name, int64_t stage, bool reshardAfterForward,
                            LaterSplits later, StringRef keep, bool experts) {
  llvm::DenseSet<Operation *> kept;
  if (!keep.empty() && failed(findKept(module, tactic, keep, kept)))
    return failure();
  Seeds seeds(tactic, name, AxisOrder(module));
  seeds.order.setData(name);
  MeshAttr mesh = meshOf(module);

  llvm::MapVector<StringAttr, SmallVector<Operation *>> leaves; // the leaves of every parameter
  llvm::StringSet<> allNames;
  SmallVector<Value> parameters;
  module.walk([&](ParameterOp parameter) {
    leaves[parameter.getNameAttr()].push_back(parameter);
    parameters.push_back(parameter.getValue());
    for (StringRef dim : parameter.getDims().getAsValueRange<StringAttr>())
      allNames.insert(dim);
  });
  module.walk([&](StateOp state) {
    if (!state.getCache())
      leaves[state.getParameterAttr()].push_back(state);
  });
  llvm::StringMap<AxisState> shards; // the placement of each parameter, its state and its gradient
  bool any = false;
  auto isExpert = [&](Operation *leaf) { return experts && expertsDim(leafDims(leaf)) >= 0; };
  for (auto &[parameter, list] : leaves) {
    int64_t dim = isExpert(list[0]) ? expertsDim(leafDims(list[0])) : -1;
    AxisState shard = shards[parameter] = dim >= 0 ? AxisState::split(dim) : shardOf(list, seeds, mesh, later);
    any |= shard.isSplit();
  }
  if (!any && mesh.size(name) > 1)
    return module.emitError() << tactic << ": no parameter has a dim whose part on a rank is divisible by "
                              << name.getValue() << "=" << mesh.size(name);

  seeds.must.insert("batch");
  seeds.only[Section::Optimizer] = allNames;
  seeds.only[Section::Optimizer].insert("layers");
  if (stage >= 2)
    seeds.only[Section::Accumulate] = allNames;
  seeds.leaf = [&](Operation *leaf) -> SmallVector<AxisState, 2> {
    if (auto parameter = dyn_cast<ParameterOp>(leaf))
      return {stage == 3 || isMaster(parameter) ? shards.lookup(parameter.getName()) : AxisState::whole()};
    if (auto state = dyn_cast<StateOp>(leaf); state && !state.getCache())
      return {likeParameter(state, cast<ParameterOp>(leaves[state.getParameterAttr()][0]),
                            shards.lookup(state.getParameter()))};
    return {splitByName(leaf, seeds.must)};
  };
  // Pins: accumulated gradients and copies of parameters are split like the shards (each copy is then gathered
  // separately); the rounded copies of masters are whole in stages 1 and 2.
  llvm::DenseMap<Value, AxisState> rest;
  if (stage >= 2)
    module.walk([&](OutputOp output) {
      if (output.getKind() == OutputKind::Gradient && shards.lookup(output.getName()).isSplit())
        rest[source(output.getValue())] = shards.lookup(output.getName());
    });
  for (size_t i = 0; i < parameters.size(); ++i)
    for (Operation *user : parameters[i].getUsers())
      if (roundsOperand(user)) {
        auto parameter = cast<ParameterOp>(source(parameters[i]).getDefiningOp());
        for (Value rounded : user->getResults()) {
          parameters.push_back(rounded);
          if (stage < 3 && !isExpert(parameter) && isMaster(parameter))
            rest[rounded] = AxisState::whole();
        }
      }
  if (stage == 3 && reshardAfterForward) {
    llvm::erase_if(parameters, [&](Value value) {
      Operation *parameter = source(value).getDefiningOp();
      return kept.contains(parameter) || isExpert(parameter);
    });
    for (Value copy : copyForReaders(parameters))
      rest[copy] = shards.lookup(cast<ParameterOp>(source(copy).getDefiningOp()).getName());
  }
  seeds.pin = [&](const PlacementValue &v) -> std::optional<AxisState> {
    auto it = rest.find(v.value);
    return it == rest.end() ? std::nullopt : std::optional(it->second);
  };
  if ((experts && failed(splitExperts(module, seeds, "batch"))) || failed(propagate(module, seeds)))
    return failure();
  gatherOnce(module, kept);
  return success();
}

namespace {
/// The pass pc-zero. Unlike other callers of placeZero, it assumes that no axis is placed later.
struct Zero : pc::impl::ZeroBase<Zero> {
  using ZeroBase::ZeroBase;

  void runOnOperation() override {
    constexpr StringRef tactic = "pc-zero";
    ModuleOp module = getOperation();
    if (stage < 1 || stage > 3) {
      module.emitError() << tactic << ": stage " << int64_t(stage) << " is unknown; expected 1, 2 or 3";
      return signalPassFailure();
    }
    if (stage != 3 && !keep.empty()) {
      module.emitError() << tactic << ": keep needs stage 3; in stage " << int64_t(stage)
                         << " every rank always has all parameters";
      return signalPassFailure();
    }
    StringAttr name = freshAxis(module, tactic, axis);
    auto later = [](ParameterOp, int64_t) { return LaterSplit(); };
    if (!name || failed(placeZero(module, tactic, name, stage, reshardAfterForward, later, keep, experts)))
      signalPassFailure();
  }
};
} // namespace
