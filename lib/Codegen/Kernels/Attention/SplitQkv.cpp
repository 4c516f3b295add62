//===- SplitQkv.cpp - Packed heads to q, k and v, and back ------------------------------===//
// Queries and keys are rotated at the same time, so that no head passes through memory twice.
//===-----------------------------------------------------------------------------===//
#include "../Kernels.h"
#include <numeric>

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

/// Moves heads from `packed`, [tokens, heads, groups + 2, d], to its parts or, if `inverse`, from the parts.
static LogicalResult emitParts(Operation *op, Kernel &kernel, Value packed, Ptr whole, ArrayRef<Ptr> parts,
                               ArrayRef<Ptr> tables, bool inverse) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(packed.getType()).getShape();
  const int64_t positions = shape[1], heads = shape[2], groups = shape[3] - 2, d = shape[4];
  // The tables are the last operands.
  const int64_t half =
      tables.empty() ? 0 : cast<RankedTensorType>(op->getOperands().back().getType()).getShape().back();
  Emitter &e = kernel.e;
  kernel.kind = "elementwise";
  if (kernel.simt && !tables.empty() && 2 * half < d) // vectors begin at multiples of their width
    kernel.simt->setWidest(std::min<int64_t>(e.lanes, std::gcd(half, d) & -std::gcd(half, d)));
  kernel.forItems(shape[0] * positions * heads * shape[3], tables.empty() ? d : half, /*reduces=*/false, [&](Num item) {
    Num group = item / shape[3], head = item % shape[3];
    auto move = [&](Ptr part, Num first, bool rotates) {
      Ptr inside = whole + item * d, from = inverse ? part + first : inside, to = inverse ? inside : part + first;
      if (tables.empty()) {
        e.vectors(d, [&](Num i, int64_t width) { to.store(from.load(i, width), i); });
        return;
      }
      auto moveRest = [&] {
        if (2 * half < d)
          e.vectors(d - 2 * half,
                    [&](Num i, int64_t width) { to.store(from.load(i + 2 * half, width), i + 2 * half); });
      };
      if (!rotates) { // still divided into halves, because the threads of a GPU are assigned by them
        e.vectors(half, [&](Num i, int64_t width) {
          Num u = from.load(i, width), w = from.load(i + half, width);
          to.store(u, i);
          to.store(w, i + half);
        });
        moveRest();
        return;
      }
      Num row = group / heads % positions * half;
      e.vectors(half, [&](Num i, int64_t width) {
        Num cosine = (tables[0] + row).load(i, width), sine = (tables[1] + row).load(i, width);
        Num u = from.load(i, width), w = from.load(i + half, width);
        if (inverse)
          sine = 0.0 - sine;
        to.store(u * cosine - w * sine, i);
        to.store(w * cosine + u * sine, i + half);
      });
      moveRest();
    };
    e.when(
        head < e.integer(groups), [&] { move(parts[0], (group * groups + head) * d, true); },
        [&] {
          e.when(
              head < e.integer(groups + 1), [&] { move(parts[1], group * d, true); },
              [&] { move(parts[2], group * d, false); });
        });
  });
  return success();
}

LogicalResult pc::kernels::emit(SplitQkvOp op, Kernel &kernel) {
  return emitParts(op, kernel, op.getX(), kernel.operands[0], kernel.results, ArrayRef(kernel.operands).drop_front(),
                   /*inverse=*/false);
}

LogicalResult pc::kernels::emit(JoinQkvOp op, Kernel &kernel) {
  auto in = ArrayRef(kernel.operands);
  return emitParts(op, kernel, op.getResult(), kernel.results[0], in.take_front(3), in.drop_front(3),
                   /*inverse=*/true);
}
