//===- FreePlacement.cpp - Seeds that let the search decide everything ----------------------===//
// Names of dims have no meaning here: predicted seconds determine which dims an axis splits, the placements of
// parameters, states and inputs, and the moves. The search finds Megatron's placement, sequence parallelism and a split
// vocabulary if they are the best.
//===-----------------------------------------------------------------------------===//
#include "Tactics.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace pc;

/// The names of leaves' dims. If a search is too wide, they are given up in this order. Only the axis of the ring can
/// handle positions in zigzag order.
static SmallVector<std::string> dimNames(ModuleOp module) {
  SmallVector<std::string> inputs;
  bool isZigzag = false;
  module.walk([&](ProgramOp program) { isZigzag |= zigzagRanks(program) > 0; });
  // Inputs come first, in the order of their dims; hyperparameters have no dim to split.
  module.walk([&](InputOp input) {
    if (input.getKind() == InputKind::Hyper)
      return;
    auto names = llvm::to_vector(input.getDims().getAsValueRange<StringAttr>());
    bool isDealtOut = llvm::any_of(input->getUsers(), llvm::IsaPred<AccumulateOp>); // along its first dim
    for (StringRef name : ArrayRef(names).drop_front(isDealtOut ? 1 : 0))
      if (!llvm::is_contained(inputs, name))
        inputs.push_back(name.str());
  });
  SmallVector<std::tuple<int64_t, int64_t, std::string>>
      others; // sorted by elements of parameters; among equals, the later name comes first
  module.walk([&](ParameterOp parameter) {
    int64_t elements = cast<RankedTensorType>(parameter.getValue().getType()).getNumElements();
    for (StringRef name : parameter.getDims().getAsValueRange<StringAttr>()) {
      auto *it = llvm::find_if(others, [&](const auto &other) { return std::get<2>(other) == name; });
      if (it != others.end())
        std::get<0>(*it) += elements;
      else if (!llvm::is_contained(inputs, name))
        others.push_back({elements, -std::ssize(others), name.str()});
    }
  });
  llvm::sort(others);
  if (isZigzag)
    inputs.clear();
  // Dims with few elements of parameters are given up first, because splitting them saves little.
  for (const auto &other : others)
    inputs.push_back(std::get<2>(other));
  return inputs;
}

/// Each leaf may be whole, or split along any of its named dims.
void pc::setFree(Seeds &seeds, const llvm::StringSet<> &names) {
  seeds.may = names; // `must`, the dims that an op has to split, is not changed
  seeds.leaf = [names](Operation *leaf) {
    SmallVector<AxisState, 2> states{AxisState::whole()};
    if (ArrayAttr dims = leafDims(leaf))
      for (auto [d, name] : llvm::enumerate(dims.getAsValueRange<StringAttr>()))
        if (names.contains(name))
          states.push_back(AxisState::split(d));
    return states;
  };
}

/// A search that is too wide is repeated with one dim less, until it fits.
LogicalResult pc::propagateFree(ModuleOp module, Seeds seeds, FoundPlacement &found) {
  SmallVector<std::string> names = dimNames(module), leftOut;
  while (true) {
    llvm::StringSet<> free;
    for (const std::string &name : names)
      free.insert(name);
    setFree(seeds, free);
    if (succeeded(propagate(module, seeds, &found))) {
      found.leftOut = llvm::join(leftOut, ",");
      return success();
    }
    // Tries again, with one dim less, only if a table was too large.
    if (!found.tooWide || names.empty())
      return failure();
    leftOut.push_back(names.front());
    names.erase(names.begin());
  }
}

/// Prices are seconds on `machine`, plus `bytePrice` for each byte that a rank keeps.
LogicalResult pc::placeFree(ModuleOp module, StringRef tactic, StringAttr axis, const MachineModel &machine,
                            double bytePrice) {
  Seeds seeds(tactic, axis, AxisOrder(module));
  seeds.times = TimePrices{machine, bytePrice};
  FoundPlacement found;
  return propagateFree(module, seeds, found);
}
