//===- PropagatePass.cpp - Propagation with seeds from options ------------------------------===//
#define GEN_PASS_DEF_PROPAGATE
#include "pc/Shard/Passes.h"

#include "Seeds.h"

using namespace mlir;
using namespace pc;

namespace {

llvm::StringSet<> setOf(ArrayRef<std::string> names) {
  llvm::StringSet<> set;
  for (const std::string &name : names)
    set.insert(name);
  return set;
}

struct Propagate : pc::impl::PropagateBase<Propagate> {
  using PropagateBase::PropagateBase;

  void runOnOperation() override {
    StringAttr name = freshAxis(getOperation(), "pc-propagate", axis);
    if (!name)
      return signalPassFailure();
    Seeds seeds("pc-propagate", name, AxisOrder(getOperation()));
    if (!inputs.empty())
      seeds.order.setData(name);
    seeds.must = setOf(must);
    seeds.may = setOf(may);
    if (!optimizer.empty())
      seeds.only[Section::Optimizer] = setOf(optimizer);
    if (!accumulated.empty())
      seeds.only[Section::Accumulate] = setOf(accumulated);
    seeds.leaf = [&](Operation *leaf) -> SmallVector<AxisState, 2> {
      llvm::StringSet<> names = setOf(isa<ParameterOp>(leaf) ? *parameters : isa<StateOp>(leaf) ? *states : *inputs);
      return {splitByName(leaf, names)};
    };
    if (fixed)
      seeds.fixed = isWeight;
    seeds.pin = [&](const PlacementValue &v) -> std::optional<AxisState> {
      if (rest.empty() || rest.size() != v.names.size())
        return std::nullopt;
      AxisState state = AxisState::whole();
      for (auto [d, dim] : llvm::enumerate(v.names)) {
        if (!dim || dim.getValue() != rest[d])
          return std::nullopt;
        if (dim.getValue() == restSplit)
          state = AxisState::split(d);
      }
      return state;
    };
    if (failed(propagate(getOperation(), seeds)))
      signalPassFailure();
  }
};
} // namespace
