//===- Columns.cpp - Cuts columns out of rows, or pads rows with zeros -------------------===//
// The kernel of pc.columns, which cuts columns out of a row, or surrounds a row with zeros (its gradient).
//===-----------------------------------------------------------------------------===//
#include "Kernels.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

LogicalResult pc::kernels::emit(ColumnsOp op, Kernel &kernel) {
  auto type = cast<RankedTensorType>(op.getResult().getType());
  const int64_t read = cast<RankedTensorType>(op.getX().getType()).getShape().back(), written = type.getShape().back();
  const int64_t rows = type.getNumElements() / written;
  const auto from = static_cast<int64_t>(op.getFrom());
  // The columns of the result that are columns of x.
  const int64_t begin = std::clamp<int64_t>(-from, 0, written);
  const int64_t end = std::clamp<int64_t>(read - from, begin, written);
  Emitter &e = kernel.e;
  Ptr x = kernel.operands[0], y = kernel.results[0];
  kernel.kind = "copy";
  if (kernel.simt) { // rows start at any address, so vectors would not be aligned
    kernel.forItems(rows * written, 1, /*reduces=*/false, [&](Num item) {
      Num column = item % written;
      e.when(
          e.inRange(column - begin, e.integer(end - begin)),
          [&] { y.store(x.load(item / written * read + column + from), item); }, [&] { y.store(e.real(0), item); });
    });
    return success();
  }
  kernel.forItems(rows, written, /*reduces=*/false, [&](Num row) {
    Ptr in = x + row * read, to = y + row * written;
    if (begin)
      to.clear(e.integer(begin));
    if (begin < end)
      e.vectors(end - begin, [&](Num i, int64_t width) { to.store(in.load(i + (begin + from), width), i + begin); });
    if (end < written)
      (to + e.integer(end)).clear(e.integer(written - end));
  });
  return success();
}
