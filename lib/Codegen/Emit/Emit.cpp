//===- Emit.cpp - Numbers, addresses and loops for writing kernels ------------------===//
// The Emitter for CPU vectors. It writes arith, vector, scf and LLVM ops; Native/ lowers them. Reductions may be
// reordered, but NaN and infinity are kept. bf16 exists only in memory: it is widened at loads and rounded at stores.
//===-----------------------------------------------------------------------------===//
#include "Emit.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "pc/IR/Codes.h"
#include "pcrt/float8.h"

using namespace mlir;
using namespace pc::kernels;

/// Sums may be reordered and products contracted, but values may not be assumed to be finite.
static constexpr auto fast = arith::FastMathFlags::reassoc | arith::FastMathFlags::contract;

static Type withWidth(Type element, int64_t width) { return width ? Type(VectorType::get(width, element)) : element; }

/// Broadcasts a scalar operand if the other one is a vector.
static void match(Num &a, Num &b) {
  if (a.width() && !b.width())
    b = a.e->splat(b, a.width());
  else if (b.width() && !a.width())
    a = a.e->splat(a, b.width());
}

/// Bytes of an element, which is also the only known alignment of its address.
static unsigned bytesOf(Type element) { return element.getIntOrFloatBitWidth() / 8; }

/// A constant like `like`, a 32-bit integer or a vector of them.
static Value bits(Emitter &e, Value like, int64_t value) {
  Value c = arith::ConstantIntOp::create(e.b, e.loc, value, 32);
  auto vector = dyn_cast<VectorType>(like.getType());
  return vector ? e.splat(e.wrap(c), vector.getNumElements()).v : c;
}

/// The bits of a bf16 are the upper half of the bits of the equal f32.
Num pc::kernels::fromBf16(Emitter &e, Value halves) {
  auto vector = dyn_cast<VectorType>(halves.getType());
  int64_t width = vector ? vector.getNumElements() : 0;
  Value whole = arith::ExtUIOp::create(e.b, e.loc, withWidth(e.b.getI32Type(), width), halves);
  whole = arith::ShLIOp::create(e.b, e.loc, whole, bits(e, whole, 16));
  return e.wrap(arith::BitcastOp::create(e.b, e.loc, withWidth(e.b.getF32Type(), width), whole));
}

/// Uses the CPU's instruction if there is one. Otherwise computes on the bits; NaN stays NaN.
Value pc::kernels::roundToBf16(Num x) {
  Emitter &e = *x.e;
  OpBuilder &b = e.b;
  Location loc = e.loc;
  Type narrow = withWidth(b.getI16Type(), x.width());
  if (e.roundsToBf16)
    return arith::BitcastOp::create(b, loc, narrow,
                                    arith::TruncFOp::create(b, loc, withWidth(b.getBF16Type(), x.width()), x.v));
  // Rounds to nearest, ties to even: adds just below half a unit of the last kept place, plus one if that place is odd.
  Value whole = arith::BitcastOp::create(b, loc, withWidth(b.getI32Type(), x.width()), x.v);
  Value upper = arith::ShRUIOp::create(b, loc, whole, bits(e, whole, 16));
  Value odd = arith::AndIOp::create(b, loc, upper, bits(e, whole, 1));
  Value rounded = arith::AddIOp::create(b, loc, arith::AddIOp::create(b, loc, whole, bits(e, whole, 0x7fff)), odd);
  rounded = arith::ShRUIOp::create(b, loc, rounded, bits(e, whole, 16));
  Value isNan = e.isNan(x).v;
  Value nan = arith::OrIOp::create(b, loc, upper, bits(e, whole, 0x40));
  return arith::TruncIOp::create(b, loc, narrow, arith::SelectOp::create(b, loc, isNan, nan, rounded));
}

static Value roundToCodes(Num x) {
  OpBuilder &b = x.e->b;
  Value whole = arith::FPToSIOp::create(b, x.e->loc, withWidth(b.getI32Type(), x.width()), x.v);
  return arith::TruncIOp::create(b, x.e->loc, withWidth(b.getI8Type(), x.width()), whole);
}

static pcrt_float8 formatOf(Type element) { return isa<Float8E4M3FNType>(element) ? pcrt_e4m3() : pcrt_e5m2(); }

/// Shifting a byte by `shift` bits puts its exponent and mantissa in the fields of an f32.
static constexpr int shiftOf(pcrt_float8 format) { return 23 - format.mantissa; }

/// The code of the largest number, 1.75 times a power of two, and one above it in both formats.
static constexpr int codeOfLargest(pcrt_float8 format) {
  return ((format.exponent + format.bias) << format.mantissa) | (3 << (format.mantissa - 2));
}
static constexpr int codeOfNan = 0x7f;

static Num fromFloat8(Emitter &e, Value bytes, Type element) {
  const pcrt_float8 format = formatOf(element);
  OpBuilder &b = e.b;
  Location loc = e.loc;
  auto vector = dyn_cast<VectorType>(bytes.getType());
  int64_t width = vector ? vector.getNumElements() : 0;
  Type wide = withWidth(b.getF32Type(), width);
  Value whole = arith::ExtUIOp::create(b, loc, withWidth(b.getI32Type(), width), bytes);
  Value size = arith::AndIOp::create(b, loc, whole, bits(e, whole, 0x7f));
  Value normal = arith::ShLIOp::create(b, loc, size, bits(e, whole, shiftOf(format)));
  normal = arith::AddIOp::create(b, loc, normal, bits(e, whole, int64_t(127 - format.bias) << 23));
  Num number = e.wrap(arith::BitcastOp::create(b, loc, wide, normal));
  // A subnormal number is its mantissa times the smallest number.
  Num integer = e.wrap(arith::SIToFPOp::create(b, loc, wide, size));
  Num isSmall = e.wrap(
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, size, bits(e, whole, int64_t(1) << format.mantissa)));
  number = e.select(isSmall, integer * std::ldexp(1, 1 - format.bias - format.mantissa), number);
  Num isNumber =
      e.wrap(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ule, size, bits(e, whole, codeOfLargest(format))));
  Num nan = e.real(std::numeric_limits<float>::quiet_NaN());
  number = e.select(isNumber, number, width ? e.splat(nan, width) : nan);
  Value sign =
      arith::ShLIOp::create(b, loc, arith::ShRUIOp::create(b, loc, whole, bits(e, whole, 7)), bits(e, whole, 31));
  Value all =
      arith::OrIOp::create(b, loc, arith::BitcastOp::create(b, loc, withWidth(b.getI32Type(), width), number.v), sign);
  return e.wrap(arith::BitcastOp::create(b, loc, wide, all));
}

static Value roundToFloat8(Num x, Type element) {
  const pcrt_float8 format = formatOf(element);
  Emitter &e = *x.e;
  OpBuilder &b = e.b;
  Location loc = e.loc;
  Type words = withWidth(b.getI32Type(), x.width());
  Value whole = arith::BitcastOp::create(b, loc, words, x.v);
  Value sign =
      arith::ShLIOp::create(b, loc, arith::ShRUIOp::create(b, loc, whole, bits(e, whole, 31)), bits(e, whole, 7));
  Num size = e.wrap(arith::BitcastOp::create(b, loc, x.v.getType(),
                                             arith::AndIOp::create(b, loc, whole, bits(e, whole, 0x7fffffff))));
  size = e.min(size, e.real(pcrt_float8_largest(format)));
  // As in roundToBf16.
  Value at = arith::BitcastOp::create(b, loc, words, size.v);
  const int shift = shiftOf(format);
  Value upper = arith::ShRUIOp::create(b, loc, at, bits(e, at, shift));
  Value odd = arith::AndIOp::create(b, loc, upper, bits(e, at, 1));
  Value normal =
      arith::AddIOp::create(b, loc, arith::AddIOp::create(b, loc, at, bits(e, at, (1 << (shift - 1)) - 1)), odd);
  normal = arith::SubIOp::create(b, loc, arith::ShRUIOp::create(b, loc, normal, bits(e, at, shift)),
                                 bits(e, at, int64_t(127 - format.bias) << format.mantissa));
  // Below the normal numbers, an addition rounds to a multiple of the smallest number: the last bit of the sum.
  Num one = e.real(std::ldexp(1, 24 - format.bias - format.mantissa));
  if (x.width())
    one = e.splat(one, x.width());
  Value sum = arith::AddFOp::create(b, loc, size.v, one.v); // without flags: nothing may be reassociated
  Value small = arith::SubIOp::create(b, loc, arith::BitcastOp::create(b, loc, words, sum),
                                      arith::BitcastOp::create(b, loc, words, one.v));
  Value byte = arith::SelectOp::create(b, loc, (size < e.real(std::ldexp(1, 1 - format.bias))).v, small, normal);
  byte = arith::SelectOp::create(b, loc, e.isNan(x).v, bits(e, at, codeOfNan), byte);
  return arith::TruncIOp::create(b, loc, withWidth(b.getI8Type(), x.width()), arith::OrIOp::create(b, loc, byte, sign));
}

/// The exponent is rounded up if the mantissa is above 1.75, that of the largest number.
Num pc::kernels::float8Scale(Num largest, Type element) {
  Emitter &e = *largest.e;
  OpBuilder &b = e.b;
  Location loc = e.loc;
  Value whole = arith::BitcastOp::create(b, loc, withWidth(b.getI32Type(), largest.width()), largest.v);
  whole = arith::AddIOp::create(b, loc, whole, bits(e, whole, 0x1fffff));
  whole = arith::AndIOp::create(b, loc, whole, bits(e, whole, 0x7f800000));
  whole = arith::SubIOp::create(b, loc, whole, bits(e, whole, int64_t(formatOf(element).exponent) << 23));
  return e.wrap(arith::BitcastOp::create(b, loc, largest.v.getType(), whole));
}

Num pc::kernels::inverseOfScale(Num scale) {
  Emitter &e = *scale.e;
  return e.select(e.real(0) < scale, e.real(1) / scale, scale * 0.0);
}

/// LLVM has no floats of 8 bits.
Type pc::kernels::typeInMemory(Type element) {
  return isFloat8(element) ? IntegerType::get(element.getContext(), 8) : element;
}
Num pc::kernels::fromMemory(Emitter &e, Value loaded, Type element) {
  if (isFloat8(element))
    return fromFloat8(e, loaded, element);
  if (!element.isInteger(8))
    return e.wrap(loaded);
  auto vector = dyn_cast<VectorType>(loaded.getType());
  return e.wrap(
      arith::SIToFPOp::create(e.b, e.loc, withWidth(e.b.getF32Type(), vector ? vector.getNumElements() : 0), loaded));
}
Value pc::kernels::toMemory(Num x, Type element) {
  return isFloat8(element) ? roundToFloat8(x, element) : element.isInteger(8) ? roundToCodes(x) : x.v;
}

Num Ptr::load(Num index) const { return load(index, 0); }
Num Ptr::load(Num index, int64_t width) const { return e->load(*this, index, width); }
void Ptr::store(Num value, Num index) const { e->store(value, *this, index); }
Num Emitter::load(Ptr from, Num index, int64_t width) {
  Ptr at = from + index;
  Type memory = from.element.isBF16() ? b.getI16Type() : typeInMemory(from.element);
  Value loaded = LLVM::LoadOp::create(b, loc, withWidth(memory, width), at.base, bytesOf(memory));
  return from.element.isBF16() ? fromBf16(*this, loaded) : fromMemory(*this, loaded, from.element);
}
void Emitter::store(Num value, Ptr to, Num index) {
  Ptr at = to + index;
  Value stored = to.element.isBF16() ? roundToBf16(value) : toMemory(value, to.element);
  LLVM::StoreOp::create(b, loc, stored, at.base, bytesOf(to.element));
}
void Ptr::clear(Num count) const {
  Value zero = arith::ConstantIntOp::create(e->b, e->loc, 0, 8);
  LLVM::MemsetOp::create(e->b, e->loc, base, zero, (count * bytesOf(element)).v, /*isVolatile=*/false);
}
Ptr Ptr::operator+(Num index) const {
  if (matchPattern(index.v, m_Zero()))
    return *this;
  return {e, LLVM::GEPOp::create(e->b, e->loc, base.getType(), typeInMemory(element), base, ValueRange{index.v}),
          element};
}

Num Emitter::integer(int64_t value) { return wrap(arith::ConstantIntOp::create(b, loc, value, 64)); }
Num Emitter::real(double value) { return wrap(arith::ConstantOp::create(b, loc, b.getF32FloatAttr(float(value)))); }
Num Emitter::splat(Num scalar, int64_t width) {
  return wrap(vector::BroadcastOp::create(b, loc, VectorType::get(width, scalar.v.getType()), scalar.v));
}

/// Picks the op by the type of the operands. A scalar is broadcast to the width of the other one.
Value pc::kernels::emitBinary(Num x, Num y, char op) {
  match(x, y);
  OpBuilder &b = x.e->b;
  Location loc = x.e->loc;
  auto flags = arith::FastMathFlagsAttr::get(b.getContext(), x.e->isExact ? arith::FastMathFlags::none : fast);
  if (x.isFloat())
    switch (op) {
    case '+':
      return arith::AddFOp::create(b, loc, x.v, y.v, flags);
    case '-':
      return arith::SubFOp::create(b, loc, x.v, y.v, flags);
    case '*':
      return arith::MulFOp::create(b, loc, x.v, y.v, flags);
    case '/':
      return arith::DivFOp::create(b, loc, x.v, y.v, flags);
    }
  switch (op) {
  case '+':
    return b.createOrFold<arith::AddIOp>(loc, x.v, y.v);
  case '-':
    return b.createOrFold<arith::SubIOp>(loc, x.v, y.v);
  case '*':
    return b.createOrFold<arith::MulIOp>(loc, x.v, y.v);
  case '/':
    return b.createOrFold<arith::DivUIOp>(loc, x.v, y.v);
  case '%':
    return b.createOrFold<arith::RemUIOp>(loc, x.v, y.v);
  case '&':
    return b.createOrFold<arith::AndIOp>(loc, x.v, y.v);
  }
  llvm_unreachable("unknown operator");
}

Num pc::kernels::compare(arith::CmpFPredicate how, Num x, Num y) {
  match(x, y);
  return x.e->wrap(arith::CmpFOp::create(x.e->b, x.e->loc, how, x.v, y.v));
}
Num pc::kernels::emitLess(Num x, Num y) {
  if (x.isFloat())
    return compare(arith::CmpFPredicate::OLT, x, y);
  match(x, y);
  return x.e->wrap(arith::CmpIOp::create(x.e->b, x.e->loc, arith::CmpIPredicate::slt, x.v, y.v));
}

/// Scalar operands are broadcast to the width of the others.
Num Emitter::fma(Num x, Num y, Num z) {
  match(x, y);
  match(y, z);
  match(x, z);
  if (x.width())
    return wrap(vector::FMAOp::create(b, loc, x.v, y.v, z.v));
  return wrap(math::FmaOp::create(b, loc, x.v, y.v, z.v));
}
/// Puts the rounded bits of `first` into the lower half of a word, and those of `second` into the upper half.
Num Emitter::words(Num first, Num second) {
  auto wide = [&](Num x) -> Value {
    return arith::ExtUIOp::create(b, loc, withWidth(b.getI32Type(), x.width()), roundToBf16(x));
  };
  Value low = wide(first), high = wide(second);
  Value word = arith::OrIOp::create(b, loc, low, arith::ShLIOp::create(b, loc, high, bits(*this, high, 16)));
  return wrap(arith::BitcastOp::create(b, loc, first.v.getType(), word));
}
/// One instruction multiplies each pair of bf16 and adds both products to one f32.
Num Emitter::addProducts(Num a, Num b, Num sums) {
  Type pairs = VectorType::get(2 * lanes, this->b.getBF16Type());
  auto halves = [&](Num x) -> Value { return vector::BitCastOp::create(this->b, loc, pairs, x.v); };
  std::string name = "llvm.x86.avx512bf16.dpbf16ps." + std::to_string(32 * lanes);
  return wrap(LLVM::CallIntrinsicOp::create(this->b, loc, sums.v.getType(), this->b.getStringAttr(name),
                                            ValueRange{sums.v, halves(a), halves(b)})
                  .getResult(0));
}
Num Emitter::select(Num condition, Num yes, Num no) {
  match(yes, no);
  return wrap(arith::SelectOp::create(b, loc, condition.v, yes.v, no.v));
}
Num Emitter::isNan(Num x) { return wrap(arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO, x.v, x.v)); }
// The comparison is false for NaN: min(NaN, y) and max(NaN, y) are y, min(x, NaN) and max(x, NaN) are NaN.
Num Emitter::min(Num x, Num y) { return select(x < y, x, y); }
Num Emitter::max(Num x, Num y) { return select(y < x, x, y); }
Num Emitter::sqrt(Num x) { return wrap(math::SqrtOp::create(b, loc, x.v)); }
Num Emitter::log(Num x) { return wrap(math::LogOp::create(b, loc, x.v)); }
Num Emitter::sin(Num x) { return wrap(math::SinOp::create(b, loc, x.v)); }
Num Emitter::cos(Num x) { return wrap(math::CosOp::create(b, loc, x.v)); }

Num Emitter::exp(Num x) {
  // x = n ln 2 + r with |r| <= ln 2 / 2; e^r by a polynomial of degree 6. Adding 1.5 * 2^23 rounds to an integer, which
  // is then in the low bits. The subtraction that follows must not be removed by reassociation.
  auto exact = [&](auto op, Num a, Num c) {
    match(a, c);
    return wrap(decltype(op)::create(b, loc, a.v, c.v));
  };
  const double magic = 12582912.0;
  // With this bound, e^x is a normal number; all results below 2^-126 become the same number.
  x = max(real(-87.33), x);
  Num shifted = fma(x, real(1.44269504088896341), real(magic));
  Num n = exact(arith::SubFOp(), shifted, real(magic));
  // ln 2 in two parts. The first has few bits, so that its product with n is exact.
  Num r = fma(n, real(-0.693359375), x);
  r = fma(n, real(2.12194440054690583e-4), r);
  static const double coefficients[] = {1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3,
                                        4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1};
  Num p = fma(real(coefficients[0]), r, real(coefficients[1]));
  for (double c : llvm::drop_begin(coefficients, 2))
    p = fma(p, r, real(c));
  p = fma(fma(p, r, real(1)), r, real(1));
  Type bits = withWidth(b.getI32Type(), x.width());
  auto constant = [&](int64_t value) -> Value {
    Value c = arith::ConstantIntOp::create(b, loc, value, 32);
    return x.width() ? splat(wrap(c), x.width()).v : c;
  };
  Value power = arith::ShLIOp::create(b, loc, arith::BitcastOp::create(b, loc, bits, shifted.v), constant(23));
  power = arith::AddIOp::create(b, loc, power, constant(127 << 23));
  return exact(arith::MulFOp(), p, wrap(arith::BitcastOp::create(b, loc, x.v.getType(), power)));
}

Num Emitter::sum(Num x) { return wrap(vector::ReductionOp::create(b, loc, vector::CombiningKind::ADD, x.v, fast)); }
Num Emitter::maximum(Num x) {
  // Compares halves with each other, because LLVM's own reduction would handle NaN in every step.
  for (int64_t half = x.width() / 2; half >= 1; half /= 2) {
    auto low = llvm::to_vector(llvm::seq<int64_t>(0, half)), high = llvm::to_vector(llvm::seq<int64_t>(half, 2 * half));
    x = max(wrap(vector::ShuffleOp::create(b, loc, x.v, x.v, low)),
            wrap(vector::ShuffleOp::create(b, loc, x.v, x.v, high)));
  }
  return wrap(vector::ExtractOp::create(b, loc, x.v, ArrayRef<int64_t>{0}));
}

Num Emitter::extend(Num x) { return wrap(arith::ExtSIOp::create(b, loc, b.getI64Type(), x.v)); }
Num Emitter::toReal(Num x) { return wrap(arith::SIToFPOp::create(b, loc, withWidth(b.getF32Type(), x.width()), x.v)); }
Num Emitter::inRange(Num x, Num end) {
  return wrap(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, x.v, end.v));
}
Num Emitter::before(Num from, Num end, int64_t width) {
  auto steps = llvm::to_vector(llvm::seq<int32_t>(0, width));
  Value step = arith::ConstantOp::create(b, loc, b.getI32VectorAttr(steps));
  Value left = arith::TruncIOp::create(b, loc, b.getI32Type(), (end - from).v);
  return wrap(step) < wrap(left);
}

void Emitter::loop(Num lo, Num hi, int64_t step, llvm::function_ref<void(Num)> body) {
  auto f = scf::ForOp::create(b, loc, lo.v, hi.v, integer(step).v);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(f.getBody());
  body(wrap(f.getInductionVar()));
}
Emitter::Carried Emitter::loop(Num lo, Num hi, int64_t step, Carried init,
                               llvm::function_ref<Carried(Num, const Carried &)> body) {
  auto values = [](const Carried &nums) { return llvm::map_to_vector(nums, [](Num n) { return n.v; }); };
  auto nums = [&](ValueRange values) { return llvm::map_to_vector<6>(values, [&](Value v) { return wrap(v); }); };
  auto f = scf::ForOp::create(b, loc, lo.v, hi.v, integer(step).v, values(init));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(f.getBody());
  auto carried = nums(f.getRegionIterArgs());
  auto next = body(wrap(f.getInductionVar()), Carried(carried.begin(), carried.end()));
  if (!next.empty()) // otherwise it exists already
    scf::YieldOp::create(b, loc, values(next));
  auto results = nums(f.getResults());
  return Carried(results.begin(), results.end());
}
void Emitter::when(Num condition, llvm::function_ref<void()> body, llvm::function_ref<void()> otherwise) {
  auto f = scf::IfOp::create(b, loc, condition.v, /*withElseRegion=*/bool(otherwise));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(f.thenBlock());
  body();
  if (!otherwise)
    return;
  b.setInsertionPointToStart(f.elseBlock());
  otherwise();
}

/// Whole vectors come first, then one narrower vector for the rest.
void Emitter::vectors(int64_t n, llvm::function_ref<void(Num, int64_t)> body) {
  int64_t full = n / lanes * lanes;
  if (full)
    loop(integer(0), integer(full), lanes, [&](Num i) { body(i, lanes); });
  if (full < n)
    body(integer(full), n - full);
}

void Emitter::vectors(int64_t n, llvm::function_ref<Carried(Num, int64_t)> body, Store store) {
  vectors(n, [&](Num i, int64_t width) { store(i, width, body(i, width)); });
}

/// The last elements, which do not fill a vector, are done one by one.
Emitter::Carried Emitter::reductions(int64_t n, ArrayRef<bool> isMax,
                                     llvm::function_ref<Emitter::Carried(Num, int64_t)> body, Store store) {
  // Four vectors of partial results hide the latency of additions; a short row has no latency to hide.
  const int64_t count = isMax.size(), unroll = n >= 4 * lanes ? 4 : 1;
  const int64_t step = unroll * lanes, full = n / step * step;
  auto combine = [&](int64_t c, Num a, Num b) { return isMax[c] ? max(a, b) : a + b; };
  auto start = [&](int64_t c) { return isMax[c] ? real(-std::numeric_limits<float>::infinity()) : real(0); };
  auto addendsOf = [&](Num index, int64_t width) {
    Carried values = body(index, width);
    if (store)
      store(index, width, ArrayRef(values).drop_front(count));
    values.truncate(count);
    return values;
  };
  // Vectors whose width is not a power of two are summed directly; maxima of any width compare pairs.
  auto across = [&](int64_t c, Num v) {
    if (!isMax[c])
      return sum(v);
    return wrap(vector::ReductionOp::create(b, loc, vector::CombiningKind::MAXIMUMF, v.v));
  };
  Emitter::Carried totals;
  for (int64_t c = 0; c < count; ++c)
    totals.push_back(start(c));
  if (full) {
    Emitter::Carried init;
    for (int64_t u = 0; u < unroll; ++u)
      for (int64_t c = 0; c < count; ++c)
        init.push_back(splat(start(c), lanes));
    Emitter::Carried partial = loop(integer(0), integer(full), step, init, [&](Num i, const Emitter::Carried &carried) {
      Emitter::Carried next;
      for (int64_t u = 0; u < unroll; ++u)
        for (auto [c, addend] : llvm::enumerate(addendsOf(i + u * lanes, lanes)))
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
    for (auto [c, addend] : llvm::enumerate(addendsOf(integer(i), std::min(lanes, n - i))))
      totals[c] = combine(c, totals[c], across(c, addend));
  return totals;
}
