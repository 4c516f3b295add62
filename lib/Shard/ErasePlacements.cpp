//===- ErasePlacements.cpp - Placed program -> step program --------------------------===//
// Removes moves, copies, the mesh and the placements of types, with their spaces. Refuses scheduled programs.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_ERASEPLACEMENTS
#include "pc/Shard/Passes.h"

#include "Retype.h"

using namespace mlir;
using namespace pc;

namespace {
/// The pass pc-erase-placements. It is the inverse of placing: the result is the step program from which the placed
/// program was built.
struct ErasePlacements : pc::impl::ErasePlacementsBase<ErasePlacements> {
  /// Replaces each move and copy by its operand, and removes the placements of all types.
  void runOnOperation() override {
    WalkResult started = getOperation().walk([](StartOp start) -> WalkResult {
      return start.emitError()
             << "pc-erase-placements: the program is scheduled already; run this pass on a placed program";
    });
    if (started.wasInterrupted())
      return signalPassFailure();
    SmallVector<Operation *> erased;
    getOperation().walk([&](Operation *op) {
      if (isa<MoveOpInterface, CopyOp>(op)) {
        op->getResult(0).replaceAllUsesWith(op->getOperand(0));
        erased.push_back(op);
      } else if (isa<MeshOp>(op)) {
        erased.push_back(op);
      }
    });
    for (Operation *op : llvm::reverse(erased))
      op->erase();
    retype(getOperation(),
           [](RankedTensorType type) -> Type { return placement(type) ? withEncoding(type, {}) : type; });
  }
};
} // namespace
