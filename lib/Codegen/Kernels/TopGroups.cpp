//===- TopGroups.cpp - Selects the groups of a row with its largest entries -------------===//
// An item computes the scores of all groups of its row, since there are few, and compares its own score with them.
//===-----------------------------------------------------------------------------===//
#include "Kernels.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

/// A group is kept if fewer than `keep` groups are better.
LogicalResult pc::kernels::emit(TopGroupsOp op, Kernel &kernel) {
  auto type = cast<RankedTensorType>(op.getX().getType());
  const auto groups = static_cast<int64_t>(op.getGroups());
  const int64_t size = type.getShape().back() / groups;
  const auto keep = static_cast<double>(op.getKeep());
  Emitter &e = kernel.e;
  kernel.kind = "elementwise";
  kernel.forItems(type.getNumElements() / size, 1, /*reduces=*/false, [&](Num item) {
    Num row = item / groups * groups, zero = e.integer(0);
    // The sum of the two largest entries of the group with this number.
    auto sumOf = [&](Num group) {
      Ptr x = kernel.operands[0] + group * size;
      Num least = e.real(-std::numeric_limits<double>::infinity());
      auto two = e.loop(zero, e.integer(size), 1, {least, least}, [&](Num i, const Emitter::Carried &best) {
        Num value = x.load(i);
        Num second = e.select(best[1] < value, value, best[1]);
        return Emitter::Carried{e.select(best[0] < value, value, best[0]), e.select(best[0] < value, best[0], second)};
      });
      return two[0] + two[1];
    };
    Num mine = sumOf(item);
    // A group is kept if fewer than `keep` groups have a higher rank. Among groups with equal scores, the earlier one
    // ranks higher.
    auto ahead = e.loop(zero, e.integer(groups), 1, {e.real(0)}, [&](Num i, const Emitter::Carried &sofar) {
      Num other = sumOf(row + i);
      Num ifBefore = e.select(other < mine, e.real(0), e.real(1)),
          ifAfter = e.select(mine < other, e.real(1), e.real(0));
      return Emitter::Carried{sofar[0] + e.select(row + i < item, ifBefore, ifAfter)};
    });
    Num isKept = e.select(ahead[0] < e.real(keep), e.real(1), e.real(0));
    Ptr result = kernel.results[0] + item * size;
    e.loop(zero, e.integer(size), 1, [&](Num i) { result.store(isKept, i); });
  });
  return success();
}
