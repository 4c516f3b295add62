//===- TensorParallel.cpp - Split heads, ffn and vocabulary ---------------------------------===//
// Form 1d: linears are column-parallel and row-parallel in turn, with one all_reduce after each pair. Embedding, head
// and loss are split by vocabulary. Reference: M. Shoeybi et al., "Megatron-LM: training multi-billion parameter
// language models using model parallelism", 2019.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_TENSORPARALLEL
#include "pc/Tactics/Passes.h"

#include "Tactics.h"
#include "pc/Shard/KnownDims.h"
#include "llvm/ADT/StringSwitch.h"
#include <numeric>

using namespace mlir;
using namespace pc;

static constexpr StringRef tactic = "pc-tensor-parallel";

/// Places one axis. Weights are split along `heads`, the width of an MLP or the vocabulary, and are never sent.
/// Activations are split wherever they have such a dim. With `experts`, a mixture's experts are distributed over ranks,
/// and the weights of each are not split.
static LogicalResult splitWeights(ModuleOp module, StringAttr axis, StringRef heads, bool experts) {
  Seeds seeds(tactic, axis, AxisOrder(module));
  llvm::StringSet<> names;
  for (StringRef name : {heads, StringRef("ffn"), StringRef("vocab")})
    names.insert(name);
  if (!experts)
    names.insert("expert_ffn");
  seeds.must = names;
  // The optimizer works on shards of weights. The norm over all gradients may add partial sums.
  seeds.only[Section::Accumulate] = seeds.only[Section::Optimizer] = seeds.must;
  seeds.only[Section::Optimizer].insert("layers");
  seeds.leaf = [&](Operation *leaf) -> SmallVector<AxisState, 2> {
    return {isa<ParameterOp, StateOp>(leaf) ? splitByName(leaf, names) : AxisState::whole()};
  };
  seeds.fixed = isWeight;
  if (experts && failed(splitExperts(module, seeds, /*tokens=*/"")))
    return failure();
  return propagate(module, seeds);
}

/// The smallest size of the dims with this name, and a leaf that has it; 0 if there is none.
static std::pair<int64_t, Operation *> sizeOf(ModuleOp module, StringRef name) {
  std::pair<int64_t, Operation *> least{0, nullptr};
  module.walk([&](ParameterOp parameter) {
    auto shape = cast<RankedTensorType>(parameter.getValue().getType()).getShape();
    for (auto [d, dim] : llvm::enumerate(parameter.getDims().getAsValueRange<StringAttr>()))
      if (dim == name && (!least.second || shape[d] < least.first))
        least = {shape[d], parameter};
  });
  return least;
}

/// Replaces `axis` in the mesh by two axes of sizes `outer` and the rest, called "<axis>.0" and "<axis>.1".
static std::pair<StringAttr, StringAttr> splitAxis(ModuleOp module, StringAttr axis, int64_t outer) {
  auto op = cast<MeshOp>(module.getBody()->front());
  MeshAttr mesh = op.getMesh();
  MLIRContext *context = module.getContext();
  auto first = StringAttr::get(context, axis.getValue() + ".0"),
       second = StringAttr::get(context, axis.getValue() + ".1");
  SmallVector<StringAttr> names;
  SmallVector<int64_t> sizes;
  for (auto [name, size] : llvm::zip(mesh.getNames(), mesh.getSizes())) {
    if (name == axis) {
      names.append({first, second});
      sizes.append({outer, size / outer});
    } else {
      names.push_back(name);
      sizes.push_back(size);
    }
  }
  op.setMeshAttr(MeshAttr::get(context, names, sizes));
  return {first, second};
}

bool pc::takesDim(StringRef form, ParameterOp parameter, int64_t dim) {
  if (form != "1d" && form != "free") // the free form is likely to split the same dims
    return gridTakesDim(form, parameter, dim);
  StringRef name = cast<StringAttr>(parameter.getDims()[dim]).getValue();
  return llvm::is_contained({"kv_heads", "group", "ffn", "expert_ffn", "vocab"}, name);
}

/// Returns true if the form 1d would split a dim of some parameter.
bool pc::hasKnownDims(ModuleOp module) {
  bool known = false;
  module.walk([&](ParameterOp parameter) {
    for (size_t d = 0; d < parameter.getDims().size(); ++d)
      known |= takesDim("1d", parameter, static_cast<int64_t>(d));
  });
  return known;
}

namespace {
/// The pass pc-tensor-parallel. The form determines how many axes there must be.
struct TensorParallel : pc::impl::TensorParallelBase<TensorParallel> {
  using TensorParallelBase::TensorParallelBase;

  /// The form determines the number of axes. Each must be in the mesh and not used yet.
  void runOnOperation() override {
    SmallVector<StringRef> names;
    StringRef(axis).split(names, ',');
    size_t wanted = llvm::StringSwitch<size_t>(form)
                        .Case("1d", 1)
                        .Case("2d", 2)
                        .Cases({"2.5d", "3d"}, 3)
                        .Case("free", names.size())
                        .Default(0);
    if (names.size() != wanted) {
      InFlightDiagnostic diagnostic = getOperation().emitError() << tactic << ": form '" << form << "' ";
      if (wanted)
        diagnostic << "needs " << wanted << " axes, got '" << axis << "'";
      else
        diagnostic << "is unknown; expected 1d, 2d, 2.5d, 3d or free";
      return signalPassFailure();
    }
    SmallVector<StringAttr> axes;
    for (StringRef name : names)
      if (StringAttr fresh = freshAxis(getOperation(), tactic, name); fresh && !llvm::is_contained(axes, fresh))
        axes.push_back(fresh);
      else if (fresh)
        getOperation().emitError() << tactic << ": axis '" << name << "' is named twice";
    if (axes.size() < names.size() || failed(place(axes)))
      signalPassFailure();
  }

  /// Only the one-dimensional form distributes whole experts.
  LogicalResult place(ArrayRef<StringAttr> axes) {
    if (experts && form != "1d")
      return getOperation().emitError()
             << tactic << ": form '" << form
             << "' splits every expert like other weights; distributing whole experts needs form 1d";
    if (form == "free")
      return placeFreely(axes);
    return axes.size() == 1 ? place(axes[0]) : placeGrid(getOperation(), form, axes, regather);
  }

  /// Places one axis after another, each by a search for the placement that takes the least time.
  LogicalResult placeFreely(ArrayRef<StringAttr> axes) {
    std::string error;
    std::optional<MachineModel> model = MachineModel::find(machine, error);
    if (!model)
      return getOperation().emitError() << tactic << ": " << error;
    for (StringAttr one : axes)
      if (failed(placeFree(getOperation(), tactic, one, *model, bytePrice)))
        return failure();
    return success();
  }

  /// Splits heads over the axis; with more ranks than key/value heads, the axis is divided into two.
  LogicalResult place(StringAttr name) {
    ModuleOp module = getOperation();
    int64_t ranks = meshOf(module).size(name);
    auto [heads, parameter] = sizeOf(module, "kv_heads");
    int64_t shared = heads ? std::gcd(heads, ranks) : ranks;
    if (shared == ranks)
      return splitWeights(module, name, "kv_heads", experts);
    // More ranks than key/value heads: on a second axis key/value heads are replicated, and the query heads of each
    // group are split.
    auto [group, query] = sizeOf(module, "group");
    if (group % (ranks / shared))
      return parameter->emitError() << tactic << ": '" << sourceName(parameter) << "': " << heads << " kv_heads of "
                                    << group << " query heads each cannot be split over " << name.getValue() << "="
                                    << ranks << "; nearest legal sizes of the axis: " << nearest(heads, group, ranks);
    if (shared == 1)
      return splitWeights(module, name, "group", experts);
    auto [outer, inner] = splitAxis(module, name, shared);
    if (failed(splitWeights(module, outer, "kv_heads", experts)))
      return failure();
    return splitWeights(module, inner, "group", experts);
  }

  /// The sizes nearest to `ranks` that divide the heads, for an error.
  static std::string nearest(int64_t heads, int64_t group, int64_t ranks) {
    auto legal = [&](int64_t n) { return group % (n / std::gcd(heads, n)) == 0; };
    int64_t below = ranks, above = ranks;
    while (!legal(below))
      --below;
    while (above <= heads * group && !legal(above))
      ++above;
    std::string text = std::to_string(below);
    return above <= heads * group ? text + " and " + std::to_string(above) : text;
  }
};
} // namespace
