//===- ContextParallel.cpp - Split the sequence everywhere -----------------------------------===//
// Attention needs all of the sequence: by heads, it works on its own heads of the whole sequence, and what it reads and
// makes changes places in all_to_alls. Reference: S. A. Jacobs et al., "DeepSpeed Ulysses", 2023.
//===-----------------------------------------------------------------------------===//
#include "pc/Shard/Passes.h"

#include "Tactics.h"

namespace pc {
#define GEN_PASS_DEF_CONTEXTPARALLEL
#include "pc/Shard/Passes.h.inc"
} // namespace pc

using namespace mlir;
using namespace pc;

namespace {
struct ContextParallel : pc::impl::ContextParallelBase<ContextParallel> {
  using ContextParallelBase::ContextParallelBase;

  void runOnOperation() override {
    constexpr StringRef tactic = "pc-context-parallel";
    if (form != "heads") {
      getOperation().emitError() << tactic << ": form '" << form << "' is "
                                 << (form == "ring" ? "not available yet; use heads" : "unknown; there is heads");
      return signalPassFailure();
    }
    StringAttr name = freshAxis(getOperation(), tactic, axis);
    if (!name)
      return signalPassFailure();
    Seeds seeds(tactic, name, AxisOrder(getOperation()));
    seeds.order.setData(name);
    seeds.must.insert("sequence");
    seeds.may.insert("kv_heads");
    // Activations by heads only: weights have no sequence.
    seeds.splits = [](const ProgramValue &v, int64_t dim) {
      return v.names[dim].getValue() != "kv_heads" || v.find("sequence") >= 0;
    };
    seeds.leaf = [&](Operation *leaf) -> SmallVector<AxisState, 2> {
      return {isa<InputOp>(leaf) ? splitByName(leaf, seeds.must) : AxisState::whole()};
    };
    seeds.pin = [](const ProgramValue &v) -> std::optional<AxisState> {
      if (isa_and_nonnull<AttentionOp>(v.value.getDefiningOp()))
        return AxisState::split(v.find("kv_heads"));
      return std::nullopt;
    };
    if (failed(propagate(getOperation(), seeds)))
      signalPassFailure();
  }
};
} // namespace
