//===- DataParallel.cpp - Split the batch, sum the gradients -------------------------------===//
// Reference: S. Li et al., "PyTorch Distributed: experiences on accelerating data parallel training", VLDB 2020.
//===-----------------------------------------------------------------------------===//
#include "pc/Shard/Passes.h"

#include "Tactics.h"

namespace pc {
#define GEN_PASS_DEF_DATAPARALLEL
#include "pc/Shard/Passes.h.inc"
} // namespace pc

using namespace mlir;
using namespace pc;

LogicalResult pc::placeData(ModuleOp module, StringRef tactic, StringAttr axis) {
  Seeds seeds(tactic, axis, AxisOrder(module));
  seeds.order.setData(axis);
  seeds.must.insert("batch");
  seeds.leaf = [&](Operation *leaf) -> SmallVector<AxisState, 2> {
    return {isa<InputOp>(leaf) ? splitByName(leaf, seeds.must) : AxisState::whole()};
  };
  return propagate(module, seeds);
}

namespace {
struct DataParallel : pc::impl::DataParallelBase<DataParallel> {
  using DataParallelBase::DataParallelBase;

  void runOnOperation() override {
    constexpr StringRef tactic = "pc-data-parallel";
    if (mode != "ddp") {
      getOperation().emitError() << tactic << ": mode '" << mode << "' is "
                                 << (mode == "naive" ? "not available yet; use ddp" : "unknown; there is ddp");
      return signalPassFailure();
    }
    StringAttr name = freshAxis(getOperation(), tactic, axis);
    if (!name)
      return signalPassFailure();
    if (failed(placeData(getOperation(), tactic, name)))
      signalPassFailure();
  }
};
} // namespace
