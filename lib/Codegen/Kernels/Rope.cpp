//===- Rope.cpp - Rotary embedding of the last dim, and its inverse ------------------===//
#include "Kernels.h"
#include <numeric>

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

LogicalResult pc::kernels::emit(RopeOp op, Kernel &kernel) {
  auto type = cast<RankedTensorType>(op.getX().getType());
  ArrayRef<int64_t> shape = type.getShape();
  const int64_t positions = shape[1], d = shape.back();
  const int64_t half = cast<RankedTensorType>(op.getCos().getType()).getShape().back();
  const int64_t tokens = shape[0] * positions, heads = type.getNumElements() / (tokens * d);
  const bool inverse = op.getInverse();
  Emitter &e = kernel.e;
  kernel.kind = "elementwise";
  if (kernel.simt && 2 * half < d) // vectors begin at multiples of their width
    kernel.simt->setWidest(std::min<int64_t>(e.lanes, std::gcd(half, d) & -std::gcd(half, d)));
  // All heads of a token share a row of the tables.
  kernel.forItems(tokens * heads, half, /*reduces=*/false, [&](Num item) {
    Num row = item / heads % positions * half;
    Ptr cosines = kernel.operands[1] + row, sines = kernel.operands[2] + row;
    Ptr from = kernel.operands[0] + item * d, to = kernel.results[0] + item * d;
    e.vectors(half, [&](Num i, int64_t width) {
      Num cosine = cosines.load(i, width), sine = sines.load(i, width);
      Num u = from.load(i, width), w = from.load(i + half, width);
      if (inverse)
        sine = 0.0 - sine;
      to.store(u * cosine - w * sine, i);
      to.store(w * cosine + u * sine, i + half);
    });
    if (2 * half < d)
      e.vectors(d - 2 * half, [&](Num i, int64_t width) { to.store(from.load(i + 2 * half, width), i + 2 * half); });
  });
  return success();
}
