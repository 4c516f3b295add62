//===- DataParallel.cpp - Split the batch, sum the gradients -------------------------------===//
// Reference: S. Li et al., "PyTorch Distributed: experiences on accelerating data parallel training", VLDB 2020.
//===-----------------------------------------------------------------------------===//
#include "pc/Shard/Passes.h"

#include "Seeds.h"

namespace pc {
#define GEN_PASS_DEF_DATAPARALLEL
#include "pc/Shard/Passes.h.inc"
} // namespace pc

using namespace mlir;
using namespace pc;

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
    Seeds seeds(tactic, name, AxisOrder(getOperation()));
    seeds.order.setData(name);
    seeds.must.insert("batch");
    seeds.leaf = [&](Operation *leaf) -> SmallVector<AxisState, 2> {
      return {isa<InputOp>(leaf) ? splitByName(leaf, seeds.must) : AxisState::whole()};
    };
    if (failed(propagate(getOperation(), seeds)))
      signalPassFailure();
  }
};
} // namespace
