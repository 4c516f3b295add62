//===- Rope.cpp - Rotary embedding of the last dim, and its inverse ------------------===//
// The kernel of pc.rope. A pair consists of one element of each half of the rotated part of a head, or of two
// neighbours (`interleaved`). Elements outside of the rotated part are copied. The inverse negates the sine.
//===-----------------------------------------------------------------------------===//
#include "Kernels.h"
#include <numeric>

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

/// The elements u and w of a pair, rotated by the given cosine and sine.
static std::pair<Num, Num> rotated(Num u, Num w, Num cosine, Num sine) {
  return {u * cosine - w * sine, w * cosine + u * sine};
}

/// The row of the tables for a token. Tables [b, s, c] have one row for each token, and tables [s, c] have one for each
/// position.
static Num rowOfTables(RopeOp op, Num token) {
  const bool forTokens = cast<RankedTensorType>(op.getCos().getType()).getRank() == 3;
  return forTokens ? token : token % cast<RankedTensorType>(op.getX().getType()).getDimSize(1);
}

/// An item is a pair of adjacent elements. It is rotated if it is among the pairs from `first` on that have a cosine.
static void emitInterleaved(RopeOp op, Kernel &kernel) {
  auto type = cast<RankedTensorType>(op.getX().getType());
  const int64_t pairs = type.getShape().back() / 2;
  const int64_t turned = cast<RankedTensorType>(op.getCos().getType()).getShape().back();
  const int64_t tokens = type.getDimSize(0) * type.getDimSize(1);
  const int64_t heads = type.getNumElements() / (tokens * 2 * pairs);
  const auto first = static_cast<int64_t>(op.getFirst()) / 2;
  const bool inverse = op.getInverse();
  Emitter &e = kernel.e;
  kernel.kind = "elementwise";
  kernel.forItems(tokens * heads * pairs, 1, /*reduces=*/false, [&](Num item) {
    Ptr from = kernel.operands[0] + item * 2, to = kernel.results[0] + item * 2;
    Num pair = item % pairs - first, row = rowOfTables(op, item / (pairs * heads)) * turned;
    Num u = from.load(e.integer(0)), w = from.load(e.integer(1));
    e.when(
        e.inRange(pair, e.integer(turned)),
        [&] {
          Num cosine = kernel.operands[1].load(row + pair), sine = kernel.operands[2].load(row + pair);
          auto [left, right] = rotated(u, w, cosine, inverse ? 0.0 - sine : sine);
          to.store(left, e.integer(0));
          to.store(right, e.integer(1));
        },
        [&] {
          to.store(u, e.integer(0));
          to.store(w, e.integer(1));
        });
  });
}

/// Rotates the two halves of a head; interleaved pairs have a separate kernel.
LogicalResult pc::kernels::emit(RopeOp op, Kernel &kernel) {
  if (op.getInterleaved())
    return emitInterleaved(op, kernel), success();
  auto type = cast<RankedTensorType>(op.getX().getType());
  ArrayRef<int64_t> shape = type.getShape();
  const int64_t d = shape.back();
  const int64_t half = cast<RankedTensorType>(op.getCos().getType()).getShape().back();
  const int64_t tokens = shape[0] * shape[1], heads = type.getNumElements() / (tokens * d);
  const auto first = static_cast<int64_t>(op.getFirst());
  const bool inverse = op.getInverse();
  Emitter &e = kernel.e;
  kernel.kind = "elementwise";
  // Only part of the head is rotated: vectors must not cross its limits.
  if (const int64_t unit = std::gcd(std::gcd(half, d), first); kernel.simt && 2 * half < d)
    kernel.simt->setWidest(std::min<int64_t>(e.lanes, unit & -unit)); // vectors begin at multiples of their width
  // All heads of a token share a row of the tables.
  kernel.forItems(tokens * heads, half, /*reduces=*/false, [&](Num item) {
    Num row = rowOfTables(op, item / heads) * half;
    Ptr cosines = kernel.operands[1] + row, sines = kernel.operands[2] + row;
    Ptr from = kernel.operands[0] + item * d, to = kernel.results[0] + item * d;
    e.vectors(half, [&](Num i, int64_t width) {
      Num cosine = cosines.load(i, width), sine = sines.load(i, width), at = i + first;
      auto [u, w] = rotated(from.load(at, width), from.load(at + half, width), cosine, inverse ? 0.0 - sine : sine);
      to.store(u, at);
      to.store(w, at + half);
    });
    auto copy = [&](int64_t begin, int64_t count) {
      if (count)
        e.vectors(count, [&](Num i, int64_t width) { to.store(from.load(i + begin, width), i + begin); });
    };
    copy(0, first);
    copy(first + 2 * half, d - first - 2 * half);
  });
  return success();
}
