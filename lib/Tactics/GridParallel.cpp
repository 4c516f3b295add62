//===- GridParallel.cpp - 2D, 2.5D and 3D tensor parallelism -----------------------------------===//
// Weights and activations are both split; whole tensors exist only between a gather and its reader. References: Q. Xu
// et al., "An efficient 2D method for training super-large deep learning models" (Optimus), 2021; B. Wang et al.,
// "Tesseract: parallelize the tensor parallelism efficiently" (2.5D), 2021; Z. Bian et al., "Maximizing parallelism in
// distributed training for huge neural networks" (3D), 2021.
//===-----------------------------------------------------------------------------===//
#include "Tactics.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace pc;

static constexpr StringRef tactic = "pc-tensor-parallel";

namespace {

/// Places one axis of the grid after another.
class Grid {
public:
  Grid(ModuleOp module, bool regather) : module(module) {
    module.walk([&](ParameterOp parameter) {
      for (StringRef dim : parameter.getDims().getAsValueRange<StringAttr>())
        allNames.insert(dim);
    });
    if (regather)
      separated = separateLinearOperands(module);
  }

  /// The column axis of 2D: splits weights by their output dim, and activations by embed, heads, ffn or vocab.
  LogicalResult placeColumn(StringAttr axis) {
    return place(axis, columnNames(), {}, [&](ParameterOp parameter) { return columnDim(parameter); }, "embed");
  }
  /// The dim of a parameter that the column axis splits. In an embedding table it is the vocabulary. Otherwise it is a
  /// dim that the result of the linear also has, or else the first dim with a name that the column axis splits.
  static AxisState columnDim(ParameterOp parameter);
  /// Returns true if the column axis of 2D splits activations by this dim.
  static bool splitsInActivations(ParameterOp parameter, int64_t dim) {
    return columnNames().contains(cast<StringAttr>(parameter.getDims()[dim]).getValue());
  }
  /// Axis j of 3D: splits every weight and the residual stream by embed. Results of products that contract embed are
  /// instead reduce_scattered along the batch.
  LogicalResult placeInner(StringAttr axis) {
    return place(
        axis, namesOf({"embed", "batch"}), {}, [](ParameterOp parameter) { return innerDim(parameter); }, "embed");
  }
  static AxisState innerDim(ParameterOp parameter) { return splitByName(parameter, namesOf({"embed"})); }
  /// Axis l of 3D: splits weights by heads, ffn or vocab, and the residual stream by batch.
  LogicalResult placeOuter(StringAttr axis) {
    return place(
        axis, hiddenNames(), namesOf({"batch"}), [&](ParameterOp parameter) { return outerDim(parameter); }, "batch");
  }
  static AxisState outerDim(ParameterOp parameter) { return splitByName(parameter, hiddenNames()); }

private:
  static llvm::StringSet<> namesOf(std::initializer_list<StringRef> list) {
    llvm::StringSet<> names;
    for (StringRef name : list)
      names.insert(name);
    return names;
  }

  /// One axis of the grid: weights have the state that `weight` returns, and activations with "embed" are split along
  /// `restSplit`.
  LogicalResult place(StringAttr axis, llvm::StringSet<> must, llvm::StringSet<> may,
                      llvm::function_ref<AxisState(ParameterOp)> weight, StringRef restSplit) {
    Seeds seeds(tactic, axis, AxisOrder(module));
    seeds.must = std::move(must);
    seeds.may = std::move(may);
    seeds.only[Section::Accumulate] = seeds.only[Section::Optimizer] = allNames;
    llvm::StringMap<ParameterOp> parameters;
    module.walk([&](ParameterOp parameter) { parameters[parameter.getName()] = parameter; });
    seeds.leaf = [&](Operation *leaf) -> SmallVector<AxisState, 2> {
      if (auto parameter = dyn_cast<ParameterOp>(leaf))
        return {weight(parameter)};
      if (auto state = dyn_cast<StateOp>(leaf))
        if (ParameterOp parameter = parameters.lookup(state.getParameter()))
          return {likeParameter(state, parameter, weight(parameter))};
      return {AxisState::whole()};
    };
    // Statistics of norms and of the loss, which have only the dims batch and sequence, may be whole or split.
    seeds.binds = [](const PlacementValue &v) {
      return llvm::any_of(
          v.names, [](StringAttr name) { return name && name.getValue() != "batch" && name.getValue() != "sequence"; });
    };
    // Weights are never sent along this axis. Operands of linears are not sent either; instead, the copies that
    // separateLinearOperands has made are sent.
    seeds.fixed = [&](const PlacementValue &v) { return isWeight(v) || separated.contains(v.value); };
    seeds.pin = [&](const PlacementValue &v) -> std::optional<AxisState> {
      if (v.section != Section::Forward || !v.isActivation("embed"))
        return std::nullopt;
      bool copy = isa_and_nonnull<CopyOp>(v.value.getDefiningOp());
      return copy ? std::nullopt : std::optional(AxisState::split(v.find(restSplit)));
    };
    return propagate(module, seeds);
  }

  static llvm::StringSet<> hiddenNames() { return namesOf({"kv_heads", "ffn", "expert_ffn", "vocab"}); }
  static llvm::StringSet<> columnNames() { return namesOf({"embed", "kv_heads", "ffn", "expert_ffn", "vocab"}); }

  ModuleOp module;
  llvm::StringSet<> allNames;
  llvm::DenseSet<Value> separated;
};

/// Looks for the linears that read the parameter, also through copies, casts, resizes and moves.
AxisState Grid::columnDim(ParameterOp parameter) {
  llvm::StringSet<> names = columnNames();
  if (AxisState vocabulary = splitByName(parameter, namesOf({"vocab"})); vocabulary.isSplit())
    return vocabulary;
  SmallVector<OpOperand *> uses(llvm::make_pointer_range(parameter.getValue().getUses()));
  for (size_t i = 0; i < uses.size(); ++i) {
    Operation *reader = uses[i]->getOwner();
    if (isa<CopyOp, CastOp, ResizeOp, MoveOpInterface>(reader))
      llvm::append_range(uses, llvm::make_pointer_range(reader->getUses()));
    auto einsum = dyn_cast<EinsumOp>(reader);
    if (!einsum || stepPhase(einsum) != StepPhase::Forward)
      continue;
    FactorRule rule = einsum.getFactorRule();
    ArrayRef<int> dims = rule.operands[uses[i]->getOperandNumber()];
    for (auto [d, name] : llvm::enumerate(parameter.getDims().getAsValueRange<StringAttr>()))
      if (names.contains(name) && llvm::is_contained(rule.results[0], dims[d]))
        return AxisState::split(d);
  }
  return splitByName(parameter, names);
}

} // namespace

/// Checks that all axes have the same size.
static LogicalResult checkSquare(ModuleOp module, StringRef form, ArrayRef<StringAttr> axes) {
  MeshAttr mesh = meshOf(module);
  int64_t least = mesh.size(axes[0]), most = least;
  for (StringAttr axis : axes) {
    least = std::min(least, mesh.size(axis));
    most = std::max(most, mesh.size(axis));
  }
  if (least == most)
    return success();
  InFlightDiagnostic diagnostic = module.emitError()
                                  << tactic << ": form " << form << " needs axes of equal size, got ";
  llvm::interleaveComma(axes, diagnostic,
                        [&](StringAttr axis) { diagnostic << axis.getValue() << "=" << mesh.size(axis); });
  return diagnostic << "; " << least << " or " << most << " for all of them would fit";
}

bool pc::gridTakesDim(StringRef form, ParameterOp parameter, int64_t dim) {
  AxisState split = AxisState::split(dim);
  return form == "3d" ? Grid::innerDim(parameter) == split || Grid::outerDim(parameter) == split
                      : Grid::columnDim(parameter) == split;
}

/// Norms over a split dim must have been decomposed. Each form is a sequence of axes, whose order decides what later
/// axes can split.
LogicalResult pc::placeGrid(ModuleOp module, StringRef form, ArrayRef<StringAttr> axes, bool regather) {
  if (failed(checkSquare(module, form, form == "2.5d" ? axes.drop_front() : axes)))
    return failure();
  WalkResult norms = module.walk([](Operation *op) -> WalkResult {
    if (Value gamma = normGamma(op); gamma && normalizes(gamma, "embed"))
      return op->emitError() << tactic << ": " << describe(op)
                             << " normalizes a dim that this form splits; run pc-decompose-norms first";
    return WalkResult::advance();
  });
  if (norms.wasInterrupted())
    return failure();

  Grid grid(module, regather);
  if (form == "3d") {
    // Axis j is placed before l. Otherwise the reduce_scatter of sums over embed along the batch would work in the
    // middle of the batch's list of axes.
    if (failed(grid.placeInner(axes[1])) || failed(grid.placeOuter(axes[2])))
      return failure();
    return placeZero(module, tactic, axes[0], 3, regather);
  }
  // Rows are placed before columns, because the bytes of moves over columns are then known per rank.
  if (form == "2.5d" && failed(placeData(module, tactic, axes[0])))
    return failure();
  StringAttr row = axes[axes.size() - 2], column = axes.back();
  int64_t q = meshOf(module).size(column);
  auto later = [&](ParameterOp parameter, int64_t dim) -> LaterSplit {
    bool splits = grid.columnDim(parameter) == AxisState::split(dim);
    return {splits ? q : 1, !splits && grid.splitsInActivations(parameter, dim)};
  };
  return success(succeeded(placeZero(module, tactic, row, 3, regather, later)) && succeeded(grid.placeColumn(column)));
}
