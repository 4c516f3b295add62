//===- RowMath.cpp - What row kernels need beside the Emitter ---------------------------===//
#include "RowMath.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace pc::kernels;

Num pc::kernels::integer32(Emitter &e, int64_t value) {
  return e.wrap(arith::ConstantIntOp::create(e.b, e.loc, value, 32));
}

Num pc::kernels::indices(Emitter &e, Num first, int64_t width) {
  Num base = e.wrap(arith::TruncIOp::create(e.b, e.loc, e.b.getI32Type(), first.v));
  if (!width)
    return base;
  auto steps = llvm::to_vector(llvm::seq<int32_t>(0, width));
  return e.splat(base, width) + e.wrap(arith::ConstantOp::create(e.b, e.loc, e.b.getI32VectorAttr(steps)));
}

Num pc::kernels::equal(Num a, Num b) {
  Emitter &e = *a.e;
  if (a.width() && !b.width())
    b = e.splat(b, a.width());
  else if (b.width() && !a.width())
    a = e.splat(a, b.width());
  return e.wrap(arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::eq, a.v, b.v));
}

// math.erf is expanded by MLIR's polynomial approximation (Lower.cpp).
Num pc::kernels::erf(Emitter &e, Num x) { return e.wrap(math::ErfOp::create(e.b, e.loc, x.v)); }

// The minimum keeps NaN, which is its second operand.
Num pc::kernels::expAny(Emitter &e, Num x) {
  Num root = e.exp(e.min(e.real(178), x) * 0.5); // infinite from 88.4 on
  return root * root;
}
Num pc::kernels::gate(Emitter &e, Num x, Num z) { return x / (e.exp(e.min(e.real(88), z * -1.0)) + 1.0); }

Emitter::Carried pc::kernels::reductions(Emitter &e, int64_t n, ArrayRef<bool> isMax,
                                         llvm::function_ref<Emitter::Carried(Num, int64_t)> body) {
  const int64_t lanes = e.lanes, count = isMax.size(), unroll = n >= 4 * lanes ? 4 : 1;
  const int64_t step = unroll * lanes, full = n / step * step;
  auto combine = [&](int64_t c, Num a, Num b) { return isMax[c] ? e.max(a, b) : a + b; };
  auto start = [&](int64_t c) { return isMax[c] ? e.real(-std::numeric_limits<float>::infinity()) : e.real(0); };
  // Vectors narrower than a power of two are summed as they are; maxima of any width go by pairs.
  auto across = [&](int64_t c, Num v) {
    if (!isMax[c])
      return e.sum(v);
    return e.wrap(vector::ReductionOp::create(e.b, e.loc, vector::CombiningKind::MAXIMUMF, v.v));
  };
  Emitter::Carried totals;
  for (int64_t c = 0; c < count; ++c)
    totals.push_back(start(c));
  if (full) {
    Emitter::Carried init;
    for (int64_t u = 0; u < unroll; ++u)
      for (int64_t c = 0; c < count; ++c)
        init.push_back(e.splat(start(c), lanes));
    Emitter::Carried partial =
        e.loop(e.integer(0), e.integer(full), step, init, [&](Num i, const Emitter::Carried &carried) {
          Emitter::Carried next;
          for (int64_t u = 0; u < unroll; ++u)
            for (auto [c, addend] : llvm::enumerate(body(i + u * lanes, lanes)))
              next.push_back(combine(c, carried[u * count + c], addend));
          return next;
        });
    for (int64_t c = 0; c < count; ++c) {
      Num total = partial[c];
      for (int64_t u = 1; u < unroll; ++u)
        total = combine(c, total, partial[u * count + c]);
      totals[c] = across(c, total);
    }
  }
  for (int64_t i = full; i < n; i += lanes)
    for (auto [c, addend] : llvm::enumerate(body(e.integer(i), std::min(lanes, n - i))))
      totals[c] = combine(c, totals[c], across(c, addend));
  return totals;
}
