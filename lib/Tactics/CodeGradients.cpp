//===- CodeGradients.cpp - Sums of gradients whose addends are sent in few bits --------------===//
// Sets `wire` on the moves that add gradients of large matrices. An all_reduce between many ranks becomes a
// reduce_scatter of codes and an all_gather of f32, if this sends fewer bytes than the codes of all ranks.
// Reference: G. Wang et al., "ZeRO++: extremely efficient collective communication for giant model training", 2023.
//===--------------------------------------------------------------------------------------------===//
#define GEN_PASS_DEF_CODEGRADIENTS
#include "pc/Tactics/Passes.h"

#include "pc/IR/BlockCodes.h"
#include "pc/IR/Parts.h"
#include "pc/Shard/PlacementGraph.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace pc;

namespace {

/// The pass pc-code-gradients.
struct CodeGradients : pc::impl::CodeGradientsBase<CodeGradients> {
  using CodeGradientsBase::CodeGradientsBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    mesh = meshOf(module);
    if (!mesh || (bits != 8 && bits != 4)) {
      module.emitError() << "pc-code-gradients: "
                         << (mesh ? "bits must be 8 or 4, got " + std::to_string(int64_t(bits))
                                  : "needs a placed program; run pc-set-mesh and a tactic first");
      return signalPassFailure();
    }
    llvm::DenseSet<Operation *> tables;
    llvm::StringMap<ParameterOp> parameters;
    module.walk([&](EmbeddingOp embedding) { tables.insert(source(embedding.getTable()).getDefiningOp()); });
    module.walk([&](ParameterOp parameter) {
      ArrayRef<int64_t> ofTensor = partsOf(parameter)[0].source.getShape();
      if (!tables.contains(parameter) && ofTensor.size() >= 2 && ShapedType::getNumElements(ofTensor) >= fewestForCodes)
        parameters[parameter.getName()] = parameter;
    });
    llvm::SetVector<Operation *> sums;
    module.walk([&](OutputOp output) {
      if (output.getKind() == OutputKind::Gradient && parameters.contains(output.getName()))
        findSums(made(output.getValue()), sums);
    });
    for (Operation *sum : sums)
      code(cast<MoveOpInterface>(sum));
  }

private:
  /// Returns the value that the gradient is before moves, casts and sums over microbatches.
  static Value made(Value value) {
    while (Operation *op = value.getDefiningOp()) {
      if (auto accumulate = dyn_cast<AccumulateOp>(op))
        value = accumulate.getBody().front().getTerminator()->getOperand(cast<OpResult>(value).getResultNumber());
      else if (isa<MoveOpInterface, CopyOp, CastOp, ResizeOp>(op))
        value = op->getOperand(0);
      else
        break;
    }
    return value;
  }

  /// Adds the sums of f32 over ranks on all ways from `value`.
  static void findSums(Value value, llvm::SetVector<Operation *> &sums) {
    llvm::SetVector<Value> open;
    open.insert(value);
    for (size_t i = 0; i < open.size(); ++i)
      for (OpOperand &use : open[i].getUses()) {
        Operation *user = use.getOwner();
        if (auto accumulate = dyn_cast<AccumulateOp>(user->getParentOp()); accumulate && isa<YieldOp>(user))
          open.insert(accumulate.getResult(use.getOperandNumber()));
        if (!isa<MoveOpInterface, CopyOp, CastOp, ResizeOp>(user))
          continue;
        open.insert(user->getResult(0));
        auto move = dyn_cast<MoveOpInterface>(user);
        if (isa<AllReduceOp, ReduceScatterOp>(user) && move.getReduction() == PartialKind::Sum &&
            getElementTypeOrSelf(open[i]).isF32())
          sums.insert(user);
      }
  }

  bool hasWhole(Type type, WireAttr wire) const {
    return hasWholeBlocks(cast<RankedTensorType>(type), wire.getBlock(), mesh);
  }

  /// Sets `wire` on the move if its blocks divide the parts of ranks, and if codes are fewer bytes.
  void code(MoveOpInterface move) const {
    const int64_t n = mesh.size(move.getMoveAxes());
    Type from = move->getOperand(0).getType(), to = move->getResult(0).getType();
    std::optional<SmallVector<int64_t>> block = chooseBlock(cast<RankedTensorType>(from).getShape());
    if (!block || n < 2)
      return;
    auto wire = WireAttr::get(move->getContext(), bits, *block);
    if (!hasWhole(from, wire) || !hasWhole(to, wire))
      return;
    auto allReduce = dyn_cast<AllReduceOp>(*move);
    // The bytes per element that a rank receives: codes of all ranks; codes and sums of blocks; sums, around a ring.
    const double codes = static_cast<double>(wire.blockBytes()) / product(*block), ranks = static_cast<double>(n);
    const double each = 1 / ranks * (ranks - 1), ofAll = (ranks - 1) * codes, ofBlocks = each * (codes + 4);
    if (allReduce && ofBlocks < ofAll && scatter(allReduce, wire))
      return;
    if (!allReduce || ofAll < each * 8)
      move->setAttr("wire", wire);
  }
  static double product(ArrayRef<int64_t> block) { return static_cast<double>(ShapedType::getNumElements(block)); }

  /// Replaces an all_reduce by the sum of one block per rank and a gather of these blocks. Returns false if there is no
  /// dim of which each rank could have whole blocks of codes.
  bool scatter(AllReduceOp move, WireAttr wire) const {
    auto type = cast<RankedTensorType>(move.getResult().getType());
    PlaceAttr place = placement(type);
    for (int64_t dim : llvm::seq<int64_t>(0, type.getRank())) {
      PlaceAttr split = place;
      for (StringAttr axis : move.getMoveAxes())
        split = split.with(axis, AxisState::split(dim));
      RankedTensorType blocks = withEncoding(type, split);
      if (!hasWhole(blocks, wire))
        continue;
      OpBuilder builder(move);
      MoveOpInterface sum = createMove(builder, move.getLoc(), MoveKind::ReduceScatter, blocks, move.getX(),
                                       PartialKind::Sum, dim, -1, move.getAxes());
      sum->setAttr("wire", wire);
      MoveOpInterface gather = createMove(builder, move.getLoc(), MoveKind::AllGather, type, sum->getResult(0),
                                          PartialKind::None, dim, -1, move.getAxes());
      move.getResult().replaceAllUsesWith(gather->getResult(0));
      move.erase();
      return true;
    }
    return false;
  }

  MeshAttr mesh;
};

} // namespace
