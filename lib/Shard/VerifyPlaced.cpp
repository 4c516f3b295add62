//===- VerifyPlaced.cpp - Constraints of the placed phase beyond single ops -----------===//
// The constraints (V1) to (V7) are listed in Passes.td.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_VERIFYPLACED
#include "pc/Shard/Passes.h"

#include "pc/IR/Codes.h"
#include "pc/IR/Generation.h"
#include "pc/IR/LeavesByName.h"

using namespace mlir;
using namespace pc;

namespace {

/// The first axis of `place` that `mesh` lacks, or null.
StringAttr unknownAxis(PlaceAttr place, MeshAttr mesh) {
  for (int64_t d = 0, e = place.getDims().size(); d < e; ++d)
    for (StringAttr axis : place.axes(d))
      if (mesh.index(axis) < 0)
        return axis;
  for (StringAttr axis : llvm::concat<const StringAttr>(place.getPartial(), place.getRoot()))
    if (mesh.index(axis) < 0)
      return axis;
  return {};
}

/// The pass pc-verify-placed. It reports all violations, not only the first one.
struct VerifyPlaced : pc::impl::VerifyPlacedBase<VerifyPlaced> {
  using VerifyPlacedBase::VerifyPlacedBase;

  /// Checks that every value is placed on axes of the mesh, and that leaves and sinks agree. (V1) and (V2) are the
  /// rules in the pass's description.
  void runOnOperation() override {
    MeshAttr mesh = meshOf(getOperation());
    if (!mesh) {
      getOperation().emitError() << "a placed program needs pc.mesh as its first op (V1)";
      return signalPassFailure();
    }
    bool failed = false;
    LeavesByName leaves;
    getOperation().walk([&](Operation *op) { leaves.add(op); });
    auto check = [&](Operation *op, Type type) {
      auto tensor = dyn_cast<RankedTensorType>(type);
      if (!tensor)
        return;
      PlaceAttr place = placement(tensor);
      if (!place) {
        op->emitError() << "'" << sourceName(op) << "' is not placed: " << type << " (V2)";
        failed = true;
      } else if (StringAttr axis = unknownAxis(place, mesh)) {
        op->emitError() << "axis '" << axis.getValue() << "' of " << type << " is not in the mesh (V2)";
        failed = true;
      }
    };
    getOperation().walk([&](Operation *op) {
      for (Type type : op->getResultTypes())
        check(op, type);
      for (Region &region : op->getRegions())
        for (Block &block : region)
          for (Type type : block.getArgumentTypes())
            check(op, type);
      failed |= llvm::failed(checkLeafOrSink(op, leaves));
    });
    if (failed)
      signalPassFailure();
  }

  /// Checks (V3) to (V6), the values that enter a step and the values that leave it, and (V7).
  LogicalResult checkLeafOrSink(Operation *op, const LeavesByName &leaves) {
    if (auto move = dyn_cast<MoveOpInterface>(op); move && move.getMoveWire() && lossless)
      return op->emitError() << "'" << sourceName(op) << "' is added in codes of " << move.getMoveWire().getBits()
                             << " bits, which round it (V7)";
    if (isa<ParameterOp, StateOp, InputOp, ConstantOp>(op))
      if (PlaceAttr place = placement(op->getResult(0)); place && place.isPartial())
        return op->emitError() << "an input, parameter or state must not be partial, but '" << sourceName(op) << "' is "
                               << place << " (V3)";
    if (auto parameter = dyn_cast<ParameterOp>(op))
      if (int64_t dim = dimOfCodes(parameter.getValue()); dim >= 0 && isCode(getElementTypeOrSelf(parameter.getType())))
        if (PlaceAttr place = placement(parameter.getValue()); place && !place.axes(dim).empty())
          return op->emitError() << "'" << parameter.getName() << "' is " << place
                                 << ", which cuts groups of codes (V6)";
    if (auto update = dyn_cast<UpdateOp>(op)) {
      std::string name =
          (update.getParameter() ? update.getName() + " of " + *update.getParameter() : update.getName()).str();
      Value leaf = leaves.of(update);
      if (!leaf)
        return op->emitError() << "updates '" << name << "', which is not a parameter or state of this program (V4)";
      auto state = leaf.getDefiningOp<StateOp>();
      if (state && state.getCache() && !update.getValue().getDefiningOp<CacheWriteOp>())
        return op->emitError() << "the cache '" << name << "' would be moved between ranks in every step (V4)";
      if (leaf.getType() != update.getValue().getType())
        return op->emitError() << "'" << name << "' is placed as " << leaf.getType() << ", but its new value as "
                               << update.getValue().getType() << " (V4)";
    }
    if (auto output = dyn_cast<OutputOp>(op))
      if (PlaceAttr place = placement(output.getValue()); place && place.isPartial())
        return op->emitError() << "output '" << output.getName() << "' is partial: " << place << " (V5)";
    return success();
  }
};
} // namespace
