//===- PropagatePass.cpp - Propagation with seeds from options ------------------------------===//
// This pass is for tests and for trying a strategy without writing a pass. Options give the dims that leaves split,
// pins, and prices. The rest is `propagate`, as for tactics.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_PROPAGATE
#include "pc/Shard/Passes.h"

#include "pc/Shard/Seeds.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace pc;

namespace {

llvm::StringSet<> setOf(ArrayRef<std::string> names) {
  llvm::StringSet<> set;
  for (const std::string &name : names)
    set.insert(name);
  return set;
}

/// "1.250 ms a step, 2.0 MB of parameters, gradients and states on a rank; gap 0.0 %, largest table 64"
std::string textOf(const FoundPlacement &found) {
  return llvm::formatv("{0:f3} ms per step, {1:f3} MB of parameters, gradients and states per rank; gap {2:f1} %, "
                       "largest table {3}",
                       1e3 * found.seconds, 1e-6 * found.bytes, 100 * found.gap, found.largestTable)
             .str() +
         (found.leftOut.empty() ? "" : "; too wide with " + found.leftOut);
}

/// The pass pc-propagate. It builds seeds from its options and, if the options request it, prints the result.
struct Propagate : pc::impl::PropagateBase<Propagate> {
  using PropagateBase::PropagateBase;

  /// Turns the options into seeds, which fix the placements of some leaves and values, and solves for the others.
  void runOnOperation() override {
    StringAttr name = freshAxis(getOperation(), "pc-propagate", axis);
    if (!name)
      return signalPassFailure();
    Seeds seeds("pc-propagate", name, AxisOrder(getOperation()));
    if (!inputs.empty())
      seeds.order.setData(name);
    if (cost != "bytes" && cost != "seconds") {
      getOperation().emitError() << "pc-propagate: cost '" << cost << "' is unknown; expected bytes or seconds";
      return signalPassFailure();
    }
    if (cost == "seconds" && !setTimes(seeds))
      return signalPassFailure();
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
    if (free) {
      SmallVector<std::string> names(may.begin(), may.end());
      llvm::append_range(names, must);
      setFree(seeds, setOf(names));
    }
    if (fixed)
      seeds.fixed = isWeight;
    // Fixes the placement of values whose dims have exactly the names in `rest`: split along `restSplit`, or whole.
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
    FoundPlacement found;
    bool all = free && may.empty() && must.empty();
    if (failed(all ? propagateFree(getOperation(), seeds, found) : propagate(getOperation(), seeds, &found))) {
      if (found.tooWide)
        getOperation().emitError() << "pc-propagate: the search for a placement on axis '" << axis
                                   << "' needs a table that is too large; use another tactic or a smaller axis";
      return signalPassFailure();
    }
    if (tell && seeds.times)
      getOperation().emitRemark() << "pc-propagate: " << textOf(found);
  }

private:
  /// Sets prices in seconds; false after an error.
  bool setTimes(Seeds &seeds) {
    std::string error;
    std::optional<MachineModel> model = MachineModel::find(machine, error);
    if (!model)
      getOperation().emitError() << "pc-propagate: " << error;
    else
      seeds.times = TimePrices{*model, bytePrice};
    return model.has_value();
  }
};
} // namespace
