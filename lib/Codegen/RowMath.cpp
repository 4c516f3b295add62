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
