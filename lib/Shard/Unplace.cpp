//===- Unplace.cpp - Undo one axis; separate readers ---------------------------------------===//
// Helpers of tactics besides propagation. Axes are independent of each other, so one can be removed from a placed
// program; copies keep readers from sharing a gather.
//===-----------------------------------------------------------------------------===//
#include "Retype.h"
#include "Seeds.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace pc;

void pc::unplace(ModuleOp module, StringAttr axis) {
  SmallVector<MoveOpInterface> moves;
  module.walk([&](MoveOpInterface move) {
    if (llvm::all_of(move.getMoveAxes(), [&](StringAttr other) { return other == axis; }))
      moves.push_back(move);
  });
  for (MoveOpInterface move : moves) {
    move->getResult(0).replaceAllUsesWith(move->getOperand(0));
    move->erase();
  }
  retype(module, [&](RankedTensorType type) -> Type {
    PlaceAttr place = placement(type);
    return place ? withEncoding(type, place.with(axis, AxisState::whole())) : type;
  });
}

SmallVector<Value> pc::separateReaders(ModuleOp module, ArrayRef<Value> values) {
  auto inBody = [](Operation *op) { return isa<AccumulateOp>(op->getParentOp()); };
  OpBuilder builder(module.getContext());
  SmallVector<Value> copies;
  for (Value value : values) {
    for (StepPhase phase : {StepPhase::Forward, StepPhase::Backward}) {
      SmallVector<OpOperand *> uses;
      Operation *first = nullptr;
      for (OpOperand &use : value.getUses()) {
        Operation *reader = use.getOwner();
        if (!inBody(reader) || isa<YieldOp>(reader) || stepPhase(reader) != phase)
          continue;
        uses.push_back(&use);
        if (!first || reader->isBeforeInBlock(first))
          first = reader;
      }
      if (uses.empty())
        continue;
      builder.setInsertionPoint(first);
      Value copy = CopyOp::create(builder, value.getLoc(), value.getType(), value);
      for (OpOperand *use : uses)
        use->set(copy);
      copies.push_back(copy);
    }
  }
  return copies;
}

llvm::DenseSet<Value> pc::separateLinearOperands(ModuleOp module) {
  auto isWeight = [](Value value) { return isa_and_nonnull<ParameterOp>(source(value).getDefiningOp()); };
  llvm::DenseSet<Value> separated;
  SmallVector<Value> values;
  module.walk([&](EinsumOp einsum) {
    if (stepPhase(einsum) != StepPhase::Forward || einsum.getInputs().size() != 2)
      return;
    for (unsigned i : {0, 1})
      if (Value value = einsum.getInputs()[i];
          isWeight(einsum.getInputs()[1 - i]) && !isWeight(value) && separated.insert(value).second)
        values.push_back(value);
  });
  separateReaders(module, values);
  return separated;
}
