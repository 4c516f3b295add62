//===- Offload.cpp - Values that leave the device between their uses ---------------------------===//
// Retypes leaves and inserts carries. Overlap decides when the carries start, and Memory finds room for the blocks that
// are on the device.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_OFFLOAD
#include "pc/Tactics/Passes.h"

#include "mlir/IR/Builders.h"
#include "pc/IR/LeavesByName.h"

using namespace mlir;
using namespace pc;

/// Keeps `state` on disk. All of its readers follow the first one closely, so they share a carry.
static void keepOnDisk(StateOp state, ArrayRef<UpdateOp> updates) {
  Value value = state.getValue();
  const Type onDevice = value.getType();
  const RankedTensorType onDisk = inSpace(onDevice, Space::Disk);
  Operation *first = nullptr;
  for (Operation *user : value.getUsers()) {
    Operation *reader = state->getBlock()->findAncestorOpInBlock(*user);
    first = !first || reader->isBeforeInBlock(first) ? reader : first;
  }
  value.setType(onDisk);
  if (first) {
    OpBuilder builder(first);
    auto carry = CarryOp::create(builder, state.getLoc(), onDevice, value);
    value.replaceAllUsesExcept(carry.getResult(), carry);
  }
  for (UpdateOp update : updates) {
    OpBuilder builder(update);
    update.getValueMutable().assign(CarryOp::create(builder, state.getLoc(), onDisk, update.getValue()));
  }
}

namespace {
/// The pass pc-offload. It collects the updates of every state before it changes any type.
struct Offload : pc::impl::OffloadBase<Offload> {
  using OffloadBase::OffloadBase;

  void runOnOperation() override {
    if (what != "states" || to != "disk") {
      getOperation().emitError() << "pc-offload: cannot keep " << what << " on " << to
                                 << "; only states on disk are supported";
      return signalPassFailure();
    }
    LeavesByName leaves;
    SmallVector<StateOp> states;
    bool isPlaced = true;
    getOperation().walk([&](StateOp state) {
      isPlaced &= placement(state.getValue()) && spaceOf(state.getValue()) == Space::Device;
      leaves.add(state);
      if (!state.getCache())
        states.push_back(state);
    });
    if (!isPlaced || states.empty()) {
      getOperation().emitError() << "pc-offload: "
                                 << (isPlaced ? "this program has no optimizer states, so none can be kept on disk"
                                              : "the states must be placed, and on the device; run the pass once, "
                                                "after the other tactics");
      return signalPassFailure();
    }
    llvm::DenseMap<Value, SmallVector<UpdateOp, 1>> updates;
    getOperation().walk([&](UpdateOp update) {
      if (update.getParameter())
        updates[leaves.of(update)].push_back(update);
    });
    for (StateOp state : states)
      keepOnDisk(state, updates.lookup(state.getValue()));
  }
};
} // namespace
