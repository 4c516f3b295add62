//===- TopK.cpp - Selects the largest entries of a row --------------------------------===//
// An entry is chosen if fewer than k entries rank higher: larger ones, and equal ones at a lower index. Rows are short
// (one entry per expert), so each entry is compared with all others.
//===-----------------------------------------------------------------------------===//
#include "../Emit/RowMath.h"
#include "Kernels.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

/// Compares each entry with all others of its row.
LogicalResult pc::kernels::emit(TopKOp op, Kernel &kernel) {
  auto type = cast<RankedTensorType>(op.getX().getType());
  const int64_t columns = type.getShape().back(), rows = type.getNumElements() / columns;
  const auto k = static_cast<double>(op.getK());
  Emitter &e = kernel.e;
  kernel.kind = "elementwise";
  kernel.forItems(rows, columns, /*reduces=*/false, [&](Num item) {
    Num row = item * columns;
    Ptr x = kernel.operands[0] + row, chosen = kernel.results[0] + row;
    e.vectors(columns, [&](Num i, int64_t width) {
      auto each = [&](double number) { return width ? e.splat(e.real(number), width) : e.real(number); };
      Num mine = x.load(i, width), places = indices(e, i, width);
      Emitter::Carried ahead =
          e.loop(e.integer(0), e.integer(columns), 1, {each(0)}, [&](Num j, const Emitter::Carried &sofar) {
            Num other = x.load(j), isBefore = indices(e, j, 0) < places;
            Num ifBefore = e.select(other < mine, each(0), each(1)), ifAfter = e.select(mine < other, each(1), each(0));
            return Emitter::Carried{sofar[0] + e.select(isBefore, ifBefore, ifAfter)};
          });
      chosen.store(e.select(ahead[0] < e.real(k), each(1), each(0)), i);
    });
  });
  return success();
}
