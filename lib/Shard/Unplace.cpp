//===- Unplace.cpp - Undo one axis; separate readers ---------------------------------------===//
// Helpers of tactics other than propagation. Axes are independent of each other, so one can be removed from a placed
// program. Copies prevent readers from sharing a gather.
//===-----------------------------------------------------------------------------===//
#include "Retype.h"
#include "pc/IR/Readers.h"
#include "pc/Shard/Seeds.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace pc;

/// Removes the moves that work over only this axis; every other move stays.
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

/// Readers in the forward pass get one copy and those in the backward pass another, so that the two can have different
/// placements.
SmallVector<Value> pc::copyForReaders(ArrayRef<Value> values) {
  SmallVector<Value> copies;
  for (Value value : values)
    llvm::append_range(copies, separateReaders(value, [&](OpBuilder &builder) -> Value {
                         return CopyOp::create(builder, value.getLoc(), value.getType(), value);
                       }));
  return copies;
}

/// A linear is an einsum of an activation and a weight. An activation that several linears read is copied once.
llvm::DenseSet<Value> pc::separateLinearOperands(ModuleOp module) {
  auto isWeight = [](Value value) { return isa_and_nonnull<ParameterOp>(source(value).getDefiningOp()); };
  llvm::DenseSet<Value> separated;
  SmallVector<Value> values;
  module.walk([&](EinsumOp einsum) {
    if (stepPhase(einsum) != StepPhase::Forward || einsum.getInputs().size() != (einsum.getMask() ? 3 : 2))
      return;
    for (unsigned i : {0, 1})
      if (Value value = einsum.getInputs()[i];
          isWeight(einsum.getInputs()[1 - i]) && !isWeight(value) && separated.insert(value).second)
        values.push_back(value);
  });
  copyForReaders(values);
  return separated;
}
