//===- Packing.cpp - How tightly homes are packed ----------------------------------------------===//
// Guesses which of two overlapping buffers is misplaced. It decides only which op an error names, never whether a
// program is right.
//===-----------------------------------------------------------------------------===//
#include "Packing.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "pc/IR/Calls.h"
#include "pc/IR/Liveness.h"
#include "pc/IR/PC.h"

using namespace mlir;
using namespace pc;
using namespace pc::proof;

/// Returns true if only the alignment of a CPU's or a device's arena separates the two offsets.
static bool lagsBehind(int64_t end, int64_t begin) {
  auto isAligned = [&](uint64_t bytes) { return begin == static_cast<int64_t>(llvm::alignTo(end, bytes)); };
  return isAligned(1) || isAligned(64) || isAligned(256);
}

static std::optional<Range> rangeOf(Value value) {
  int64_t home = isa<RankedTensorType>(value.getType()) ? homeOrNone(value) : -1;
  return home < 0 ? std::nullopt : std::optional(Range{home, home + byteSize(value.getType())});
}

/// The results of `op`. The results of a start are the results of its wait.
static SmallVector<Value> resultsOf(Operation *op) {
  auto start = dyn_cast<StartOp>(op->getParentOp());
  if (!start)
    return llvm::to_vector_of<Value>(op->getResults());
  for (auto [i, move] : llvm::enumerate(start.getMoves()))
    if (WaitOp wait = start.getWait(); move == op && wait && i < wait.getNumResults())
      return {wait.getResult(i)};
  return {};
}

/// The score of an op is the score of its worst result.
int Packing::fit(Operation *op) {
  const Layout &layout = layoutOf(op);
  int fit = 3;
  for (Value value : resultsOf(op)) {
    std::optional<Range> own = rangeOf(value);
    if (!own)
      continue;
    auto another = [&](auto isNext) {
      return llvm::any_of(layout.ranges, [&](auto range) {
        Range other{range.first, range.second};
        return !(other == *own) && isNext(other);
      });
    };
    bool begins = own->begin == 0 || another([&](Range other) { return lagsBehind(other.end, own->begin); });
    bool ends = own->end == layout.bytes || another([&](Range other) { return lagsBehind(own->end, other.begin); });
    fit = std::min(fit, 2 * begins + ends);
  }
  return fit;
}

/// The homes in the function around `op`, which are read once per function.
const Packing::Layout &Packing::layoutOf(Operation *op) {
  Operation *function = op->getParentOfType<func::FuncOp>();
  auto [it, isNew] = layouts.try_emplace(function);
  Layout &layout = it->second;
  if (!isNew || !function)
    return layout;
  for (auto arena : function->getParentOfType<ModuleOp>().getOps<ArenaOp>())
    layout.bytes = static_cast<int64_t>(arena.getBytes());
  function->walk([&](Operation *other) {
    for (Value value : other->getResults())
      if (std::optional<Range> range = rangeOf(value))
        layout.ranges.insert({range->begin, range->end});
  });
  return layout;
}
