//===- Unplace.cpp - Undo one axis; separate readers ---------------------------------------===//
// What tactics need besides propagation: axes are independent of each other, so one can be taken out of a placed
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

/// The readers of `value` in the step's body, in order.
static SmallVector<OpOperand *> readersInBody(Value value) {
  SmallVector<OpOperand *> uses;
  for (OpOperand &use : value.getUses())
    if (isa<AccumulateOp>(use.getOwner()->getParentOp()) && !isa<YieldOp>(use.getOwner()))
      uses.push_back(&use);
  llvm::stable_sort(uses, [](OpOperand *a, OpOperand *b) {
    return a->getOwner() != b->getOwner() && a->getOwner()->isBeforeInBlock(b->getOwner());
  });
  return uses;
}

SmallVector<Value> pc::separateReaders(ModuleOp module, ArrayRef<Value> values, bool perUse) {
  // Where any of the values is read: the readers of one of them are apart where another one is read in between.
  SmallVector<std::pair<Operation *, Value>> reads;
  for (Value value : values)
    for (OpOperand *use : readersInBody(value))
      reads.push_back({use->getOwner(), value});
  llvm::stable_sort(reads, [](auto &a, auto &b) { return a.first != b.first && a.first->isBeforeInBlock(b.first); });
  auto apart = [&](Operation *a, Operation *b, Value value) {
    auto it = llvm::upper_bound(reads, a, [](Operation *op, auto &read) { return op->isBeforeInBlock(read.first); });
    for (; it != reads.end() && it->first->isBeforeInBlock(b); ++it)
      if (it->second != value)
        return true;
    return false;
  };
  OpBuilder builder(module.getContext());
  SmallVector<Value> copies;
  for (Value value : values) {
    Operation *last = nullptr;
    Value copy;
    for (OpOperand *use : readersInBody(value)) {
      Operation *reader = use->getOwner();
      if (!last || stepPhase(reader) != stepPhase(last) || (perUse && reader != last && apart(last, reader, value))) {
        builder.setInsertionPoint(reader);
        copy = CopyOp::create(builder, value.getLoc(), value.getType(), value);
        copies.push_back(copy);
      }
      use->set(copy);
      last = reader;
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
