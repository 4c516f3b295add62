//===- Schedule.cpp - The order in which moves are issued -----------------------------===//
#include "pc/Overlap/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace pc {
#define GEN_PASS_DEF_SCHEDULE
#include "pc/Overlap/Passes.h.inc"
} // namespace pc

using namespace mlir;
using namespace pc;

namespace {
struct Schedule : pc::impl::ScheduleBase<Schedule> {
  void runOnOperation() override {
    bool failed = false;
    getOperation().walk([&](Operation *op) { failed |= mlir::failed(verifyOrder(op)); });
    if (failed)
      signalPassFailure();
  }

  /// (S1)
  LogicalResult verifyOrder(Operation *op) {
    if (isa<MoveOpInterface>(op) && isa_and_nonnull<FusionOp>(op->getParentOp()))
      return op->emitOpError() << "is a move inside a kernel (S1)";
    if (op->getNumRegions() == 0 || isa<ModuleOp, FusionOp>(op))
      return success();
    if (!isa<func::FuncOp, AccumulateOp>(op))
      return op->emitOpError() << "has a region that ranks might run differently often (S1)";
    if (op->getRegion(0).getBlocks().size() > 1)
      return op->emitOpError() << "has several blocks, so moves have no fixed order (S1)";
    return success();
  }
};
} // namespace
