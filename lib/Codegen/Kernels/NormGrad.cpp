//===- NormGrad.cpp - Gradients of layer_norm and rms_norm on a CPU ------------------===//
// Part 0 computes dx by rows. Part 1 sums dgamma and dbeta by blocks of columns, each over all rows in a fixed order,
// so no partial sums are stored.
//===-----------------------------------------------------------------------------===//
#include "Kernels.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

namespace {
/// x is [rows, columns].
struct NormGrad {
  int64_t rows, columns;
  bool layerNorm;
};

constexpr int64_t columnBlock = 64;

/// The operands and results of the gradient. `mean` and `dbeta` exist only for layer_norm.
struct Operands {
  Ptr dy, x, mean, rstd, gamma, dx, dgamma, dbeta;
};
} // namespace

/// dx of row `r`: rstd (g - mean(g) - h mean(g h)) with g = dy gamma and h the normalized x; rms_norm has no mean(g).
static void writeRow(Emitter &e, const NormGrad &n, const Operands &at, Num r) {
  Num row = r * n.columns, scale = at.rstd.load(r);
  Num mean = n.layerNorm ? at.mean.load(r) : e.real(0);
  auto centered = [&](Num i, int64_t width) {
    Num x = at.x.load(row + i, width);
    return n.layerNorm ? x - mean : x;
  };
  auto gradient = [&](Num i, int64_t width) { return at.dy.load(row + i, width) * at.gamma.load(i, width); };
  auto sums = e.sums(n.columns, n.layerNorm ? 2 : 1, [&](Num i, int64_t width) {
    Num g = gradient(i, width);
    Emitter::Carried addends = {g * (centered(i, width) * scale)};
    if (n.layerNorm)
      addends.push_back(g);
    return addends;
  });
  Num along = sums[0] * (1.0 / n.columns);
  Num offset = n.layerNorm ? sums[1] * (1.0 / n.columns) : e.real(0);
  e.vectors(n.columns, [&](Num i, int64_t width) {
    Num g = gradient(i, width) - centered(i, width) * scale * along;
    if (n.layerNorm)
      g = g - offset;
    at.dx.store(g * scale, row + i);
  });
}

/// dgamma and dbeta of the `width` columns from `first` on. Partial sums of 64 rows keep rounding errors small.
static void writeColumns(Emitter &e, const NormGrad &n, const Operands &at, Num first, int64_t width) {
  SmallVector<std::pair<int64_t, int64_t>> pieces; // offset, width of each vector
  for (int64_t i = 0; i < width; i += e.lanes)
    pieces.push_back({i, std::min(e.lanes, width - i)});
  Emitter::Carried zeros;
  for (auto [offset, w] : pieces)
    zeros.append(n.layerNorm ? 2 : 1, e.zeros(w));
  const int64_t chunk = 64;
  // The inner loop sums one chunk of rows from zero; the outer loop adds the chunks.
  auto totals = e.loop(e.integer(0), e.integer(n.rows), chunk, zeros, [&](Num start, const Emitter::Carried &totals) {
    Num end = e.min(start + chunk, e.integer(n.rows));
    auto partial = e.loop(start, end, 1, zeros, [&](Num r, const Emitter::Carried &carried) {
      Num row = r * n.columns + first, scale = at.rstd.load(r);
      Emitter::Carried next;
      for (auto [offset, w] : pieces) {
        Num dy = at.dy.load(row + offset, w), x = at.x.load(row + offset, w);
        if (n.layerNorm)
          x = x - at.mean.load(r);
        next.push_back(carried[next.size()] + dy * (x * scale));
        if (n.layerNorm)
          next.push_back(carried[next.size()] + dy);
      }
      return next;
    });
    Emitter::Carried next;
    for (auto [total, addend] : llvm::zip_equal(totals, partial))
      next.push_back(total + addend);
    return next;
  });
  const Num *total = totals.begin();
  for (auto [offset, w] : pieces) {
    at.dgamma.store(*total++, first + offset);
    if (n.layerNorm)
      at.dbeta.store(*total++, first + offset);
  }
}

/// Part 0 writes dx row by row, part 1 the gradients of parameters, column by column.
static LogicalResult emitNormGrad(Kernel &kernel, Value x, bool layerNorm) {
  auto type = cast<RankedTensorType>(x.getType());
  const int64_t columns = type.getShape().back();
  const NormGrad n{type.getNumElements() / columns, columns, layerNorm};
  Emitter &e = kernel.e;
  auto in = kernel.operands, out = kernel.results;
  const Operands at = layerNorm ? Operands{in[0], in[1], in[2], in[3], in[4], out[0], out[1], out[2]}
                                : Operands{in[0], in[1], Ptr(), in[2], in[3], out[0], out[1], Ptr()};
  kernel.kind = "norm";
  if (kernel.part == 0) {
    kernel.forItems(n.rows, columns, /*reduces=*/true, [&](Num r) { writeRow(e, n, at, r); });
    return success();
  }
  kernel.items = (columns + columnBlock - 1) / columnBlock;
  const int64_t full = columns / columnBlock;
  if (full)
    e.loop(kernel.lo, e.min(kernel.hi, e.integer(full)), 1,
           [&](Num item) { writeColumns(e, n, at, item * columnBlock, columnBlock); });
  if (full < kernel.items)
    e.when(e.integer(full) < kernel.hi,
           [&] { writeColumns(e, n, at, e.integer(full * columnBlock), columns - full * columnBlock); });
  return success();
}

LogicalResult pc::kernels::emit(LayerNormGradOp op, Kernel &kernel) { return emitNormGrad(kernel, op.getX(), true); }
LogicalResult pc::kernels::emit(RMSNormGradOp op, Kernel &kernel) { return emitNormGrad(kernel, op.getX(), false); }
