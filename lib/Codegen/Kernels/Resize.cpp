//===- Resize.cpp - Makes a dim shorter, or longer with zeros --------------------------===//
// The kernel of pc.resize, which adds or removes padding of a dim. Everything after the dim is one contiguous stretch.
//===-----------------------------------------------------------------------------===//
#include "Kernels.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

LogicalResult pc::kernels::emit(ResizeOp op, Kernel &kernel) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(op.getX().getType()).getShape();
  const int64_t dim = op.getDim(), to = cast<RankedTensorType>(op.getResult().getType()).getDimSize(dim);
  int64_t outer = 1, inner = 1;
  for (int64_t n : shape.take_front(dim))
    outer *= n;
  for (int64_t n : shape.drop_front(dim + 1))
    inner *= n;
  // Rows of these lengths; their first `common` elements are equal.
  const int64_t read = shape[dim] * inner, written = to * inner, common = std::min(read, written);
  Emitter &e = kernel.e;
  Ptr x = kernel.operands[0], y = kernel.results[0];
  kernel.kind = "copy";
  if (kernel.simt) { // rows start at any address, so vectors would not be aligned
    kernel.forItems(outer * written, 1, /*reduces=*/false, [&](Num item) {
      Num column = item % written;
      e.when(
          column < e.integer(common), [&] { y.store(x.load(item / written * read + column), item); },
          [&] { y.store(e.real(0), item); });
    });
    return success();
  }
  // Long rows are divided into pieces, so that there is work for all threads.
  const int64_t stretch = 4096, full = common / stretch, pieces = full + 1;
  kernel.forItems(outer * pieces, std::min(written, stretch), /*reduces=*/false, [&](Num item) {
    Num row = item / pieces, piece = item % pieces;
    Ptr from = x + row * read + piece * stretch, into = y + row * written + piece * stretch;
    auto copy = [&](int64_t n) { e.vectors(n, [&](Num i, int64_t width) { into.store(from.load(i, width), i); }); };
    e.when(
        piece < e.integer(full), [&] { copy(stretch); },
        [&] {
          if (common > full * stretch)
            copy(common - full * stretch);
          if (written > common)
            (into + e.integer(common - full * stretch)).clear(e.integer(written - common));
        });
  });
  return success();
}
