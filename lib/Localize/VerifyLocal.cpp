//===- VerifyLocal.cpp - Verifies local programs -------------------------------------===//
// (L1) no type has a placement. (L2) leaves and outputs state their global shape and layout, from which the local shape
// follows. (L3) axes are in the mesh. (L4) an update sets a leaf of this program, of the same type, once. (L5) no op is
// left that only models have. (L6) no move has `wire`. Passes.td lists the same numbers.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_VERIFYLOCAL
#include "pc/Localize/Passes.h"

#include "pc/IR/BlockCodes.h"
#include "pc/IR/LeavesByName.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;

namespace {

/// Checks (L2): `global`, divided by the axes of `layout`, is the shape of `value`.
template <typename Op> LogicalResult verifyLayout(Op op, Value value, MeshAttr mesh) {
  auto type = cast<RankedTensorType>(value.getType());
  std::optional<ArrayRef<int64_t>> global = op.getGlobal();
  std::optional<PlaceAttr> layout = op.getLayout();
  if (!global || !layout)
    return op.emitOpError() << "needs 'global' and 'layout' in a local program (L2)";
  int64_t rank = type.getRank();
  if (static_cast<int64_t>(global->size()) != rank || static_cast<int64_t>(layout->getDims().size()) != rank ||
      layout->isPartial())
    return op.emitOpError() << "'global' and 'layout' do not fit " << type << " (L2)";
  for (int64_t d = 0; d < rank; ++d) {
    SmallVector<StringAttr> axes = layout->axes(d);
    int64_t n = mesh ? mesh.size(axes) : axes.empty();
    if (!n)
      return op.emitOpError() << "'layout' uses an axis that is not in the mesh (L3)";
    if (type.getDimSize(d) * n != (*global)[d])
      return op.emitOpError() << "dim " << d << " has global size " << (*global)[d] << " and is split into " << n
                              << " blocks, which does not give a local size of " << type.getDimSize(d) << " (L2)";
  }
  return success();
}

/// The pass pc-verify-local. It reports all violations, not only the first one.
struct VerifyLocal : pc::impl::VerifyLocalBase<VerifyLocal> {
  void runOnOperation() override {
    mesh = meshOf(getOperation());
    leaves = {}; // the pass may run on several modules
    updated.clear();
    bool failed = false;
    getOperation().walk([&](Operation *op) { failed |= mlir::failed(verifyTypes(op)) || mlir::failed(verifyOp(op)); });
    if (failed)
      signalPassFailure();
  }

  /// Checks (L1): no type has a placement.
  LogicalResult verifyTypes(Operation *op) {
    auto local = [&](Type type) { return !placement(type); };
    for (Region &region : op->getRegions())
      if (!llvm::all_of(region.getArgumentTypes(), local))
        return op->emitOpError() << "has a placed block argument (L1)";
    if (!llvm::all_of(op->getResultTypes(), local))
      return op->emitOpError() << "has a placed result (L1)";
    return success();
  }

  /// Checks (L3): the mesh has the axes that an op names.
  LogicalResult verifyAxes(Operation *op, ArrayRef<StringAttr> axes) {
    for (StringAttr axis : axes)
      if (!mesh || mesh.index(axis) < 0)
        return op->emitOpError() << "axis '" << axis.getValue() << "' is not in the mesh (L3)";
    return success();
  }

  /// The constraints for one op, by its kind.
  LogicalResult verifyOp(Operation *op) {
    return llvm::TypeSwitch<Operation *, LogicalResult>(op)
        .Case<ParameterOp, StateOp, InputOp, RopeTableOp, OutputOp>([&](auto leaf) {
          leaves.add(leaf);
          return verifyLayout(leaf, leaf.getValue(), mesh);
        })
        .Case([&](TopKOp choice) {
          return choice.getLayer() ? verifyLayout(choice, choice.getResult(), mesh) : success();
        })
        .Case([&](BlockOffsetOp offset) { return verifyAxes(offset, axisList(offset.getAxes())); })
        .Case([&](MoveOpInterface move) -> LogicalResult {
          if (move.getMoveWire())
            return move->emitOpError() << "has 'wire', which belongs in placed programs only; pc-localize writes the "
                                          "codes of addends (L6)";
          return verifyAxes(move, move.getMoveAxes());
        })
        .Case([&](EncodeAddendOp encode) { return verifyAxes(encode, axisList(encode.getAxes())); })
        .Case([&](UpdateOp update) { return verifyUpdate(update); })
        .Case<CrossEntropyOp, LogSumExpOp>([&](auto loss) -> LogicalResult {
          return loss.emitOpError() << "belongs in model programs only; pc-differentiate expands it (L5)";
        })
        .Default(success());
  }

  /// Checks (L4): an update sets a leaf of this program, once, to a value of its type.
  LogicalResult verifyUpdate(UpdateOp update) {
    Value leaf = leaves.of(update);
    if (!leaf)
      return update.emitOpError() << "sets '" << update.getName()
                                  << "', which is not a parameter or state of this program (L4)";
    auto bare = [](Value value) { return withoutHome(value.getType()); }; // homes may differ
    if (bare(update.getValue()) != bare(leaf))
      return update.emitOpError() << "sets " << leaf.getType() << " to a value of type " << update.getValue().getType()
                                  << " (L4)";
    if (!updated.insert(leaf).second)
      return update.emitOpError() << "sets '" << update.getName() << "' a second time (L4)";
    return success();
  }

  MeshAttr mesh;
  LeavesByName leaves;
  llvm::DenseSet<Value> updated;
};

} // namespace
