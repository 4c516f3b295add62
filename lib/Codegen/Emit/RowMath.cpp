//===- RowMath.cpp - Operations of row kernels that the Emitter lacks -------------------===//
// The code serves both CPU vectors and GPU threads, because every function uses only the interface that Emitter and
// SimtEmitter share. A pointwise op is one case here. Formulas are exact enough for all f32 arguments, including
// infinities and NaN.
//===-----------------------------------------------------------------------------===//
#include "RowMath.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "pc/IR/PC.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

Num pc::kernels::integer32(Emitter &e, int64_t value) {
  return e.wrap(arith::ConstantIntOp::create(e.b, e.loc, value, 32));
}

Num pc::kernels::indices(Emitter &e, Num first, int64_t width) {
  Num base = e.wrap(arith::TruncIOp::create(e.b, e.loc, e.b.getI32Type(), first.v));
  if (!width)
    return base;
  return e.splat(base, width) + e.wrap(arith::ConstantOp::create(e.b, e.loc, e.b.getI32VectorAttr(e.steps(width))));
}

Num pc::kernels::equal(Num a, Num b) {
  Emitter &e = *a.e;
  if (a.width() && !b.width())
    b = e.splat(b, a.width());
  else if (b.width() && !a.width())
    a = e.splat(a, b.width());
  return e.wrap(arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::eq, a.v, b.v));
}

Num pc::kernels::positionOf(Emitter &e, Num index, int64_t length, int64_t ranks) {
  int64_t chunk = length / (2 * ranks);
  Num block = index / (2 * chunk), within = index % (2 * chunk);
  return e.select(within < e.integer(chunk), block * chunk + within,
                  (e.integer(2 * ranks - 1) - block) * chunk + within - chunk);
}

// math.erf is expanded by MLIR's polynomial approximation (Lower.cpp).
Num pc::kernels::erf(Emitter &e, Num x) { return e.wrap(math::ErfOp::create(e.b, e.loc, x.v)); }

// The minimum keeps NaN, which is its second operand.
Num pc::kernels::expAny(Emitter &e, Num x) {
  // e^x = (e^(x/2))^2, since Emitter::exp is correct only up to 88.
  Num root = e.exp(e.min(e.real(178), x) * 0.5); // infinite from 88.4 on
  return root * root;
}
Num pc::kernels::gate(Emitter &e, Num x, Num z) { return x / (e.exp(e.min(e.real(88), z * -1.0)) + 1.0); }

// An odd polynomial divided by an even one, on the interval outside of which the f32 result is +-1. The minimum keeps
// NaN.
Num pc::kernels::tanh(Emitter &e, Num x) {
  constexpr double odd[] = {-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
                            1.48572235717979e-05,  6.37261928875436e-04, 4.89352455891786e-03};
  constexpr double even[] = {1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03};
  constexpr double end = 7.90531110763549805;
  x = e.max(e.real(-end), e.min(e.real(end), x));
  Num square = x * x;
  auto polynomial = [&](ArrayRef<double> factors) {
    Num sum = square * factors[0] + factors[1];
    for (double factor : factors.drop_front(2))
      sum = sum * square + factor;
    return sum;
  };
  return x * polynomial(odd) / polynomial(even);
}

//===---------------------------------------------------------------------------===//
// Pointwise ops, in the order of PCOps.td
//===---------------------------------------------------------------------------===//

/// The function in f32, by the emitter's exp, tanh and erf.
static Num activation(Emitter &e, ActivationKind kind, Num x) {
  switch (kind) {
  case ActivationKind::GeluTanh: { // x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3)
    Num u = x * (x * x * 0.044715 + 1.0) * 0.7978845608028654;
    return gate(e, x, u * 2.0);
  }
  case ActivationKind::Gelu:
    return x * (erf(e, x * 0.70710678118654752) + 1.0) * 0.5;
  case ActivationKind::Silu:
    return gate(e, x, x);
  case ActivationKind::Relu:
    return e.max(e.real(0), x); // keeps NaN
  case ActivationKind::Tanh:
    return tanh(e, x);
  case ActivationKind::Sigmoid:
    return gate(e, e.real(1), x);
  }
  llvm_unreachable("unknown activation");
}

/// dy times the derivative at x.
static Num activationGrad(Emitter &e, ActivationKind kind, Num dy, Num x) {
  Num one = e.real(1);
  switch (kind) {
  case ActivationKind::GeluTanh: { // the derivative is s + x s (1 - s) 2 u', where s = sigmoid(2u)
    Num square = x * x;
    Num u = x * (square * 0.044715 + 1.0) * 0.7978845608028654;
    Num s = gate(e, one, u * 2.0);
    Num du = (square * 0.134145 + 1.0) * 0.7978845608028654;
    return dy * (s + x * s * (one - s) * du * 2.0);
  }
  case ActivationKind::Gelu: { // Phi(x) + x phi(x)
    Num phi = e.exp(x * x * -0.5) * 0.3989422804014327;
    return dy * ((erf(e, x * 0.70710678118654752) + 1.0) * 0.5 + x * phi);
  }
  case ActivationKind::Silu: {
    Num s = gate(e, one, x);
    return dy * (s + x * s * (one - s));
  }
  case ActivationKind::Relu:
    return e.select(e.real(0) < x, dy, e.real(0));
  case ActivationKind::Tanh: // 4 sigmoid(2x) sigmoid(-2x), because 1 - tanh^2 loses all digits if it is small
    return dy * gate(e, one, x * 2.0) * gate(e, one, x * -2.0) * 4.0;
  case ActivationKind::Sigmoid: // sigmoid(x) sigmoid(-x)
    return dy * gate(e, one, x) * gate(e, one, x * -1.0);
  }
  llvm_unreachable("unknown activation");
}

/// Returns `inside` if x is between the bounds of `op`, which is a clamp or its gradient. Otherwise returns the bound
/// for a clamp, and 0 for a gradient.
template <typename Op> static Num clamped(Emitter &e, Op op, Num x, Num inside) {
  constexpr bool isGradient = std::is_same_v<Op, ClampGradOp>;
  auto end = [&](double at) { return e.real(isGradient ? 0 : at); };
  double to = op.getTo().convertToDouble();
  Num value = e.select(e.real(to) < x, end(to), inside);
  if (!op.getFrom())
    return value;
  double from = op.getFrom()->convertToDouble();
  return e.select(x < e.real(from), end(from), value);
}

/// The comparison of `kind`, which is false if one of the numbers is NaN.
static arith::CmpFPredicate predicateOf(ComparisonKind kind) {
  switch (kind) {
  case ComparisonKind::Less:
    return arith::CmpFPredicate::OLT;
  case ComparisonKind::LessEqual:
    return arith::CmpFPredicate::OLE;
  case ComparisonKind::Equal:
    return arith::CmpFPredicate::OEQ;
  }
  llvm_unreachable("unknown comparison");
}

/// The function of a pointwise op on numbers of any width; null for any other op.
PointwiseMath pc::kernels::pointwiseMath(Operation *op) {
  return llvm::TypeSwitch<Operation *, PointwiseMath>(op)
      .Case([](AddOp) { return [](Emitter &, ArrayRef<Num> x) { return x[0] + x[1]; }; })
      .Case([](SubOp) { return [](Emitter &, ArrayRef<Num> x) { return x[0] - x[1]; }; })
      .Case([](ScaleOp scale) {
        return [c = scale.getFactor().convertToDouble()](Emitter &, ArrayRef<Num> x) { return x[0] * c; };
      })
      // A copy is a new number: a product with one, which is exact.
      .Case([](CopyOp) { return [](Emitter &, ArrayRef<Num> x) { return x[0] * 1.0; }; })
      .Case([](CastOp) { // stores round; inside a kernel everything is f32
        return [](Emitter &e, ArrayRef<Num> x) { return x[0].isFloat() ? x[0] : e.toReal(x[0]); };
      })
      .Case([](LogOp) { return [](Emitter &e, ArrayRef<Num> x) { return e.log(x[0]); }; })
      .Case([](ExpOp) { return [](Emitter &e, ArrayRef<Num> x) { return expAny(e, x[0]); }; })
      .Case([](RecipOp) { return [](Emitter &, ArrayRef<Num> x) { return 1.0 / x[0]; }; })
      .Case([](SqrtOp) { return [](Emitter &e, ArrayRef<Num> x) { return e.sqrt(x[0]); }; })
      .Case([](SinOp) { return [](Emitter &e, ArrayRef<Num> x) { return e.sin(x[0]); }; })
      .Case([](CosOp) { return [](Emitter &e, ArrayRef<Num> x) { return e.cos(x[0]); }; })
      .Case([](SelectOp op) {
        return [how = predicateOf(op.getKind())](Emitter &e, ArrayRef<Num> x) {
          return e.select(compare(how, x[0], x[1]), x[2], x[3]);
        };
      })
      .Case([](ClampOp op) { return [op](Emitter &e, ArrayRef<Num> x) { return clamped(e, op, x[0], x[0]); }; })
      .Case([](ClampGradOp op) { return [op](Emitter &e, ArrayRef<Num> x) { return clamped(e, op, x[1], x[0]); }; })
      .Case([](ActivationOp op) {
        return [kind = op.getKind()](Emitter &e, ArrayRef<Num> x) { return activation(e, kind, x[0]); };
      })
      .Case([](ActivationGradOp op) {
        return [kind = op.getKind()](Emitter &e, ArrayRef<Num> x) { return activationGrad(e, kind, x[0], x[1]); };
      })
      .Default(PointwiseMath());
}
