//===- Scalar.cpp - Arithmetic, comparisons, logic, conversions -----------===//
// The instructions that each thread runs by itself. A comment before each row names its section of the PTX ISA.
// Results are correctly rounded; those of *.approx are within the documented error.
//===----------------------------------------------------------------------===//
#include "Block.h"

#include <cmath>
#include <limits>
#include <type_traits>

using namespace pc::ptx;

namespace {

/// A number in bf16, computed with in f32 and rounded once.
struct Bf16 {
  uint16_t bits;
};

float toFloat(Bf16 x) { return std::bit_cast<float>(uint32_t(x.bits) << 16); }

/// To nearest even; a NaN becomes the canonical one, 0x7fff.
Bf16 toBf16(float x) {
  auto bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x))
    return {0x7fff};
  return {uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

template <class T> T read(uint64_t bits) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<float>(uint32_t(bits));
  else if constexpr (std::is_same_v<T, Bf16>)
    return {uint16_t(bits)};
  else if constexpr (std::is_same_v<T, bool>)
    return bits & 1;
  else
    return T(bits);
}

template <class T> uint64_t written(T value) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<uint32_t>(value);
  else if constexpr (std::is_same_v<T, Bf16>)
    return value.bits;
  else if constexpr (std::is_same_v<T, bool>)
    return value;
  else
    return std::make_unsigned_t<T>(value);
}

/// d = f(a), f(a, b) or f(a, b, c) with operands of type T.
template <class T, auto f> void run(const Instruction &in, Warp &warp, uint32_t lanes) {
  Lanes &d = warp.lanes(in.operands[0]);
  auto arguments = [&](auto... i) {
    forEach(lanes, [&](int lane) { d[lane] = written(f(read<T>(warp.values(in.operands[i])[lane])...)); });
  };
  if constexpr (std::is_invocable_v<decltype(f), T>)
    arguments(1);
  else if constexpr (std::is_invocable_v<decltype(f), T, T>)
    arguments(1, 2);
  else
    arguments(1, 2, 3);
}

[[noreturn]] void refuseType() { throw Fault{"the reader does not know this instruction for this type"}; }

/// `f` for the integers of a type; "b" types are unsigned.
template <auto f> Execute forIntegers(Type type) {
  bool isSigned = type.kind == 's';
  if (type.kind == 'f' || type.kind == 'h' || type.kind == 'p')
    refuseType();
  switch (type.bits) {
  case 16:
    return isSigned ? run<int16_t, f> : run<uint16_t, f>;
  case 32:
    return isSigned ? run<int32_t, f> : run<uint32_t, f>;
  case 64:
    return isSigned ? run<int64_t, f> : run<uint64_t, f>;
  default:
    refuseType();
  }
}

template <auto f> Execute forBits(Type type) {
  if (type.kind == 'p')
    return run<bool, f>;
  return forIntegers<f>(type);
}

/// Both halves of packed f32.
template <auto f> uint64_t inWords(std::same_as<uint64_t> auto... x) {
  return written(f(read<float>(x)...)) | written(f(read<float>(x >> 32)...)) << 32;
}

template <auto f> Bf16 inFloats(std::same_as<Bf16> auto... x) { return toBf16(f(toFloat(x)...)); }

/// Both halves of packed bf16.
template <auto f> uint32_t inHalves(std::same_as<uint32_t> auto... x) {
  uint32_t low = inFloats<f>(Bf16{uint16_t(x)}...).bits, high = inFloats<f>(Bf16{uint16_t(x >> 16)}...).bits;
  return low | high << 16;
}

/// `f` for floats, and with its arguments in f32 for bf16.
template <auto f, int arguments> Execute forFloats(Type type) {
  if (type == Type{'f', 32})
    return run<float, f>;
  if (type == Type{'h', 16}) {
    if constexpr (arguments == 1)
      return run<Bf16, [](Bf16 a) { return inFloats<f>(a); }>;
    else if constexpr (arguments == 2)
      return run<Bf16, [](Bf16 a, Bf16 b) { return inFloats<f>(a, b); }>;
    else
      return run<Bf16, [](Bf16 a, Bf16 b, Bf16 c) { return inFloats<f>(a, b, c); }>;
  }
  if (type == Type{'h', 32}) {
    if constexpr (arguments == 1)
      return run<uint32_t, [](uint32_t a) { return inHalves<f>(a); }>;
    else if constexpr (arguments == 2)
      return run<uint32_t, [](uint32_t a, uint32_t b) { return inHalves<f>(a, b); }>;
    else
      return run<uint32_t, [](uint32_t a, uint32_t b, uint32_t c) { return inHalves<f>(a, b, c); }>;
  }
  if (type == Type{'f', 2 * 32}) {
    if constexpr (arguments == 2)
      return run<uint64_t, [](uint64_t a, uint64_t b) { return inWords<f>(a, b); }>;
    else if constexpr (arguments == 3)
      return run<uint64_t, [](uint64_t a, uint64_t b, uint64_t c) { return inWords<f>(a, b, c); }>;
  }
  refuseType();
}

bool isFloating(Type type) { return type.kind == 'f' || type.kind == 'h'; }

template <auto f, int arguments = 2> Execute forNumbers(Type type) {
  return isFloating(type) ? forFloats<f, arguments>(type) : forIntegers<f>(type);
}

/// .ftz: subnormal operands and results are zero.
float flush(float x) { return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.f, x) : x; }
template <auto f> float flushed(float x) { return flush(f(flush(x))); }

/// Selects one of two functions of an f32: the second one with .ftz.
template <auto f> void approximate(Opcode &opcode, Instruction &in) {
  bool ftz = opcode.take("ftz");
  if (opcode.type() != Type{'f', 32})
    refuseType();
  in.run = ftz ? run<float, [](float x) { return flushed<f>(x); }> : run<float, f>;
}

/// fma.rm: the largest float that is not above the exact result. The product is exact in double precision.
float fmaDown(float a, float b, float c) {
  double product = double(a) * b, sum = product + c;
  double part = sum - product, error = (product - (sum - part)) + (c - part);
  auto rounded = float(sum);
  bool above = std::isfinite(sum) && double(rounded) - sum > error;
  return above ? std::nextafter(rounded, -std::numeric_limits<float>::infinity()) : rounded;
}

constexpr auto minimum = [](auto a, auto b) {
  if constexpr (std::is_floating_point_v<decltype(a)>)
    return std::fmin(a, b);
  else
    return a < b ? a : b;
};
constexpr auto maximum = [](auto a, auto b) {
  if constexpr (std::is_floating_point_v<decltype(a)>)
    return std::fmax(a, b);
  else
    return a < b ? b : a;
};
constexpr auto magnitude = [](auto a) {
  if constexpr (std::is_floating_point_v<decltype(a)>)
    return std::fabs(a);
  else
    return decltype(a)(a < 0 ? -a : a);
};
/// .NaN: the result is NaN if an operand is.
template <auto f> constexpr auto withNan = [](auto a, auto b) { return a != a || b != b ? decltype(a)(NAN) : f(a, b); };

template <auto f> void extremum(Opcode &opcode, Instruction &in) {
  bool nan = opcode.take("NaN");
  Type type = opcode.type();
  in.run = nan ? forFloats<withNan<f>, 2>(type) : forNumbers<f>(type);
}

template <class T> auto wide(T x) {
  if constexpr (sizeof(T) == 2)
    return std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>(x);
  else if constexpr (sizeof(T) == 4)
    return std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>(x);
  else
    return std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>(x);
}

/// mad.wide: the sum has twice the bits of the factors.
template <class T> void madWide(const Instruction &in, Warp &warp, uint32_t lanes) {
  forEach(lanes, [&](int lane) {
    auto factor = [&](int i) { return wide(read<T>(warp.values(in.operands[i])[lane])); };
    auto sum = factor(1) * factor(2) + read<decltype(factor(1))>(warp.values(in.operands[3])[lane]);
    warp.lanes(in.operands[0])[lane] = written(sum);
  });
}

/// mul and mad of integers: .lo, .hi or .wide.
void multiply(Opcode &opcode, Instruction &in) {
  bool add = opcode.name() == "mad";
  int part = opcode.takeOne({"lo", "hi", "wide"});
  if (part < 0)
    opcode.take("rn");
  Type type = opcode.type();
  if (part == 0 && add)
    in.run = forIntegers<[](auto a, auto b, decltype(a) c) { return decltype(a)(wide(a) * b + c); }>(type);
  else if (part == 0)
    in.run = forIntegers<[](auto a, auto b) { return decltype(a)(wide(a) * b); }>(type);
  else if (part == 1 && !add)
    in.run = forIntegers<[](auto a, auto b) { return decltype(a)(wide(a) * b >> 8 * sizeof(a)); }>(type);
  else if (part == 2 && add && type.bits == 32)
    in.run = type.kind == 's' ? madWide<int32_t> : madWide<uint32_t>;
  else if (part == 2 && !add && type.bits == 32)
    in.run = type.kind == 's' ? run<int32_t, [](int32_t a, int32_t b) { return wide(a) * b; }>
                              : run<uint32_t, [](uint32_t a, uint32_t b) { return wide(a) * b; }>;
  else if (part == 2 && !add && type.bits == 16)
    in.run = type.kind == 's' ? run<int16_t, [](int16_t a, int16_t b) { return wide(a) * b; }>
                              : run<uint16_t, [](uint16_t a, uint16_t b) { return wide(a) * b; }>;
  else if (part < 0 && !add)
    in.run = forFloats<[](auto a, auto b) { return a * b; }, 2>(type);
  else
    opcode.refuse();
}

/// add, sub or fma .f32.bf16: the last operand is an f32, the others are bf16 ("Mixed Precision Floating-Point").
template <auto f> void runMixed(const Instruction &in, Warp &warp, uint32_t lanes) {
  forEach(lanes, [&](int lane) {
    auto bits = [&](int i) { return warp.values(in.operands[i])[lane]; };
    float a = toFloat(read<Bf16>(bits(1)));
    float result;
    if constexpr (std::is_invocable_v<decltype(f), float, float>)
      result = f(a, read<float>(bits(2)));
    else
      result = f(a, toFloat(read<Bf16>(bits(2))), read<float>(bits(3)));
    warp.lanes(in.operands[0])[lane] = written(result);
  });
}

void fma(Opcode &opcode, Instruction &in) {
  constexpr auto f = [](auto a, auto b, auto c) { return std::fma(a, b, c); };
  bool down = opcode.take("rm");
  if (!down)
    opcode.need("rn");
  Type type = opcode.type();
  bool isF32 = type == Type{'f', 32};
  if (down && !isF32)
    refuseType();
  // bf16 is rounded to f32 first, which can differ from one rounding by a unit in the last place.
  in.run = down ? run<float, fmaDown> : isF32 && opcode.take("bf16") ? runMixed<f> : forFloats<f, 3>(type);
}

void addOrSubtract(Opcode &opcode, Instruction &in) {
  constexpr auto sum = [](auto a, auto b) { return decltype(a)(a + b); };
  constexpr auto difference = [](auto a, auto b) { return decltype(a)(a - b); };
  bool adds = opcode.name() == "add", rounded = opcode.take("rn");
  Type type = opcode.type();
  if (rounded && !isFloating(type))
    refuseType();
  if (type == Type{'f', 32} && opcode.take("bf16"))
    in.run = adds ? runMixed<sum> : runMixed<difference>;
  else
    in.run = adds ? forNumbers<sum>(type) : forNumbers<difference>(type);
}

void divide(Opcode &opcode, Instruction &in) {
  opcode.takeOne({"rn", "full", "approx"});
  Type type = opcode.type();
  constexpr auto quotient = [](auto a, auto b) {
    return decltype(a)(b == 0 && std::is_integral_v<decltype(b)> ? -1 : a / b);
  };
  in.run = forNumbers<quotient>(type);
}

/// shl and shr: more than the bits of the type shifts everything out. The count has 32 bits.
void shift(Opcode &opcode, Instruction &in) {
  Type type = opcode.type();
  constexpr auto left = [](auto a, auto b) {
    uint32_t count = uint32_t(b);
    return decltype(a)(count >= 8 * sizeof(a) ? 0 : a << count);
  };
  constexpr auto right = [](auto a, auto b) {
    uint32_t count = std::min<uint32_t>(uint32_t(b), 8 * sizeof(a) - 1);
    return decltype(a)(uint32_t(b) == count ? a >> count : std::is_signed_v<decltype(a)> && a < 0 ? -1 : 0);
  };
  in.run = opcode.name() == "shl" ? forIntegers<left>(type) : forIntegers<right>(type);
}

/// bfe: `c` bits from bit `b` on; a signed field is extended by its highest bit.
void extractField(Opcode &opcode, Instruction &in) {
  in.run = forIntegers<[](auto a, auto b, decltype(a) c) {
    constexpr int bits = 8 * sizeof(a);
    int from = int(b & 0xff), count = int(c & 0xff);
    if (count == 0)
      return decltype(a)(0);
    int top = std::min(from + count, bits) - 1;
    auto field = decltype(a)(from >= bits ? 0 : a >> from);
    int width = std::min(count, bits - std::min(from, bits));
    bool negative = std::is_signed_v<decltype(a)> && (a >> top & 1);
    if (width < bits) {
      auto mask = decltype(a)((uint64_t(1) << width) - 1);
      field = decltype(a)((field & mask) | (negative ? ~mask : 0));
    }
    return field;
  }>(opcode.type());
}

enum Comparison { Eq, Ne, Lt, Le, Gt, Ge, Equ, Neu, Ltu, Leu, Gtu, Geu, Num, Nan };

/// Ordered comparisons are false if an operand is NaN, unordered ones (u) true.
template <class T> bool compare(int comparison, T a, T b) {
  bool unordered = a != a || b != b;
  if (comparison == Num || comparison == Nan)
    return unordered == (comparison == Nan);
  if (unordered)
    return comparison >= Equ;
  switch (comparison >= Equ ? comparison - Equ : comparison) {
  case Eq:
    return a == b;
  case Ne:
    return a != b;
  case Lt:
    return a < b;
  case Le:
    return a <= b;
  case Gt:
    return a > b;
  default:
    return a >= b;
  }
}

/// setp.<comparison>[.and | .or | .xor] p, a, b [, q]
template <class T> void setPredicate(const Instruction &in, Warp &warp, uint32_t lanes) {
  forEach(lanes, [&](int lane) {
    auto value = [&](int i) {
      if constexpr (std::is_same_v<T, Bf16>)
        return toFloat(read<T>(warp.values(in.operands[i])[lane]));
      else
        return read<T>(warp.values(in.operands[i])[lane]);
    };
    bool result = compare(in.number, value(1), value(2));
    if (in.operands.size() > 3) {
      bool other = bool(warp.values(in.operands[3])[lane]) != in.operands[3].negated;
      result = in.extent == 0 ? result && other : in.extent == 1 ? result || other : result != other;
    }
    warp.lanes(in.operands[0])[lane] = result;
  });
}

void comparePredicate(Opcode &opcode, Instruction &in) {
  in.number =
      opcode.takeOne({"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"});
  if (in.number < 0) // unsigned integers
    in.number = Lt + opcode.takeOne({"lo", "ls", "hi", "hs"});
  in.extent = opcode.takeOne({"and", "or", "xor"});
  Type type = opcode.type();
  bool isSigned = type.kind == 's';
  if (in.number < 0 || (in.extent >= 0) != (in.operands.size() == 4) || in.operands[0].slots.size() > 1)
    opcode.refuse();
  if (isFloating(type))
    in.run = type == Type{'f', 32} ? setPredicate<float> : type == Type{'h', 16} ? setPredicate<Bf16> : nullptr;
  else
    in.run = type.bits == 64   ? (isSigned ? setPredicate<int64_t> : setPredicate<uint64_t>)
             : type.bits == 32 ? (isSigned ? setPredicate<int32_t> : setPredicate<uint32_t>)
             : type.bits == 16 ? (isSigned ? setPredicate<int16_t> : setPredicate<uint16_t>)
                               : nullptr;
  if (!in.run)
    refuseType();
}

/// selp d, a, b, p
void select(Opcode &opcode, Instruction &in) {
  opcode.type();
  in.run = [](const Instruction &in, Warp &warp, uint32_t lanes) {
    forEach(lanes, [&](int lane) {
      bool first = bool(warp.values(in.operands[3])[lane]) != in.operands[3].negated;
      warp.lanes(in.operands[0])[lane] = warp.values(in.operands[first ? 1 : 2])[lane];
    });
  };
}

/// mov of a register, or between a register and a list of narrower ones.
void move(Opcode &opcode, Instruction &in) {
  in.type = opcode.type();
  size_t to = in.operands[0].slots.size(), from = in.operands[1].slots.size();
  in.extent = in.type.bits / int(std::max(to, from));
  in.moves = true;
  if ((to > 1 && from > 1) || in.operands[1].address)
    opcode.refuse();
  in.run = [](const Instruction &in, Warp &warp, uint32_t lanes) {
    const Operand &to = in.operands[0], &from = in.operands[1];
    forEach(lanes, [&](int lane) {
      uint64_t all = 0;
      for (size_t i = 0; i < from.slots.size(); ++i)
        all |= warp.values(from, i)[lane] << in.extent * int(i);
      for (size_t i = 0; i < to.slots.size(); ++i)
        warp.lanes(to, i)[lane] =
            to.slots.size() == 1 ? all : all >> in.extent * int(i) & ((uint64_t(1) << in.extent) - 1);
    });
  };
}

enum Rounding { Nearest, Zero, Down, Up };

/// An integer type by its kind and bits: extended and cut off. No register has 8 bits, so a signed result of 8 bits is
/// extended to the register's size.
uint64_t convertInteger(Type to, Type from, uint64_t bits) {
  auto cut = [](uint64_t x, int width) { return width == 64 ? x : x & ((uint64_t(1) << width) - 1); };
  if (from.kind == 's' && from.bits < 64)
    bits = uint64_t(int64_t(bits << (64 - from.bits)) >> (64 - from.bits));
  else
    bits = cut(bits, from.bits);
  return to == Type{'s', 8} ? cut(uint64_t(int8_t(bits)), 32) : cut(bits, to.bits);
}

/// Clamps to the range of the integer; NaN is 0.
uint64_t floatToInteger(Type to, int rounding, float x) {
  double rounded = rounding == Nearest ? std::nearbyint(x)
                   : rounding == Zero  ? std::trunc(x)
                   : rounding == Down  ? std::floor(x)
                                       : std::ceil(x);
  bool isSigned = to.kind == 's';
  double top = std::ldexp(1., to.bits - isSigned), bottom = isSigned ? -top : 0;
  if (std::isnan(x))
    return 0;
  if (rounded >= top)
    return isSigned ? (uint64_t(1) << (to.bits - 1)) - 1 : to.bits == 64 ? ~uint64_t(0) : (uint64_t(1) << to.bits) - 1;
  if (rounded < bottom)
    return isSigned ? uint64_t(1) << (to.bits - 1) : 0;
  return convertInteger(to, {'s', 64}, rounded < 0 ? uint64_t(int64_t(rounded)) : uint64_t(rounded));
}

/// cvt. Of the instruction, `type` is the result's, `number` the rounding to an integer, `extent` the bits of an
/// integer operand, and `flag` whether that is signed.
struct Conversion {
  static void integer(const Instruction &in, Warp &warp, uint32_t lanes) {
    Type from{in.flag ? 's' : 'u', in.extent};
    forEach(lanes, [&](int lane) {
      warp.lanes(in.operands[0])[lane] = convertInteger(in.type, from, warp.values(in.operands[1])[lane]);
    });
  }
  static void fromFloat(const Instruction &in, Warp &warp, uint32_t lanes) {
    forEach(lanes, [&](int lane) {
      float x = read<float>(warp.values(in.operands[1])[lane]);
      warp.lanes(in.operands[0])[lane] = floatToInteger(in.type, in.number, x);
    });
  }
  /// cvt.rn.bf16x2.f32 d, a, b: `a` becomes the upper half.
  static void pack(const Instruction &in, Warp &warp, uint32_t lanes) {
    forEach(lanes, [&](int lane) {
      uint32_t high = toBf16(read<float>(warp.values(in.operands[1])[lane])).bits;
      warp.lanes(in.operands[0])[lane] = high << 16 | toBf16(read<float>(warp.values(in.operands[2])[lane])).bits;
    });
  }
};

void convert(Opcode &opcode, Instruction &in) {
  constexpr Type f32{'f', 32}, bf16{'h', 16};
  int toFloating = opcode.takeOne({"rn", "rz", "rm", "rp"});
  in.number = opcode.takeOne({"rni", "rzi", "rmi", "rpi"});
  bool saturates = opcode.take("sat");
  in.type = opcode.type();
  Type from = opcode.type();
  in.extent = from.bits, in.flag = from.kind == 's';
  if (!isFloating(in.type) && !isFloating(from) && toFloating < 0 && in.number < 0 && !saturates)
    in.run = Conversion::integer;
  else if (!isFloating(in.type) && from == f32 && in.number >= 0 && !saturates)
    in.run = Conversion::fromFloat;
  else if (in.type == Type{'h', 32} && from == f32 && toFloating == Nearest && in.operands.size() == 3)
    in.run = Conversion::pack;
  else if (in.type == bf16 && from == f32 && toFloating == Nearest)
    in.run = run<float, [](float x) { return toBf16(x); }>;
  else if (in.type == f32 && from == bf16)
    in.run = run<Bf16, [](Bf16 x) { return toFloat(x); }>;
  else if (in.type == f32 && from == f32 && saturates) // NaN is 0
    in.run = run<float, [](float x) { return x > 0 ? std::min(x, 1.f) : 0; }>;
  else if (in.type == f32 && from == f32 && in.number >= 0)
    in.run = in.number == Nearest ? run<float, [](float x) { return std::nearbyint(x); }>
             : in.number == Zero  ? run<float, [](float x) { return std::trunc(x); }>
             : in.number == Down  ? run<float, [](float x) { return std::floor(x); }>
                                  : run<float, [](float x) { return std::ceil(x); }>;
  else if (in.type == f32 && !isFloating(from) && toFloating == Nearest)
    in.run = forIntegers<[](auto x) { return float(x); }>(from);
  else
    opcode.refuse();
}

/// prmt in the default mode: each byte of the result is one of the eight bytes of b and a, or eight copies of its sign
/// bit, selected by four bits of the selector.
uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t chosen = selector >> 4 * i & 15;
    const auto byte = uint8_t(bytes >> 8 * (chosen & 7));
    result |= uint32_t(chosen & 8 ? (byte & 0x80 ? 0xff : 0) : byte) << 8 * i;
  }
  return result;
}

void rounded(Opcode &opcode) {
  if (opcode.takeOne({"rn", "approx"}) < 0)
    opcode.refuse();
}

} // namespace

/// Sections are those of the PTX ISA 9.0, "Instructions".
const DecoderTable &pc::ptx::scalarInstructions() {
  static const DecoderTable table = {
      // Integer Arithmetic, Floating-Point, Half Precision Floating-Point: add, sub, mul, mad, fma, div, rem
      {"add", addOrSubtract},
      {"sub", addOrSubtract},
      {"mul", multiply},
      {"mad", multiply},
      {"fma", fma},
      {"div", divide},
      {"rem",
       [](Opcode &o, Instruction &in) {
         in.run = forIntegers<[](auto a, auto b) { return decltype(a)(b ? a % b : a); }>(o.type());
       }},
      // the same sections: neg, abs, min, max
      {"neg",
       [](Opcode &o, Instruction &in) { in.run = forNumbers<[](auto a) { return decltype(a)(-a); }, 1>(o.type()); }},
      {"abs", [](Opcode &o, Instruction &in) { in.run = forNumbers<magnitude, 1>(o.type()); }},
      {"min", extremum<minimum>},
      {"max", extremum<maximum>},
      // Integer Arithmetic: popc, bfe
      {"popc",
       [](Opcode &o, Instruction &in) {
         in.run = o.type().bits == 32 ? run<uint32_t, [](uint32_t a) { return uint32_t(std::popcount(a)); }>
                                      : run<uint64_t, [](uint64_t a) { return uint32_t(std::popcount(a)); }>;
       }},
      {"bfe", extractField},
      // Floating-Point: rcp, sqrt, rsqrt, lg2, ex2, tanh, copysign
      {"rcp", [](Opcode &o, Instruction &in) { rounded(o), approximate<[](float x) { return 1 / x; }>(o, in); }},
      {"sqrt",
       [](Opcode &o, Instruction &in) { rounded(o), approximate<[](float x) { return std::sqrt(x); }>(o, in); }},
      {"rsqrt",
       [](Opcode &o, Instruction &in) {
         o.need("approx"), approximate<[](float x) { return float(1 / std::sqrt(double(x))); }>(o, in);
       }},
      {"lg2",
       [](Opcode &o, Instruction &in) { o.need("approx"), approximate<[](float x) { return std::log2(x); }>(o, in); }},
      {"ex2",
       [](Opcode &o, Instruction &in) { o.need("approx"), approximate<[](float x) { return std::exp2(x); }>(o, in); }},
      {"tanh",
       [](Opcode &o, Instruction &in) { o.need("approx"), approximate<[](float x) { return std::tanh(x); }>(o, in); }},
      // copysign d, a, b: the sign of a, the rest of b
      {"copysign",
       [](Opcode &o, Instruction &in) {
         o.need("f32"), in.run = run<float, [](float a, float b) { return std::copysign(b, a); }>;
       }},
      // Comparison and Selection: setp, selp
      {"setp", comparePredicate},
      {"selp", select},
      // Logic and Shift: and, or, xor, not, shl, shr
      {"and", [](Opcode &o,
                 Instruction &in) { in.run = forBits<[](auto a, auto b) { return decltype(a)(a & b); }>(o.type()); }},
      {"or", [](Opcode &o,
                Instruction &in) { in.run = forBits<[](auto a, auto b) { return decltype(a)(a | b); }>(o.type()); }},
      {"xor", [](Opcode &o,
                 Instruction &in) { in.run = forBits<[](auto a, auto b) { return decltype(a)(a ^ b); }>(o.type()); }},
      {"not",
       [](Opcode &o, Instruction &in) {
         Type type = o.type();
         in.run = type.kind == 'p' ? run<bool, [](bool a) { return !a; }>
                                   : forIntegers<[](auto a) { return decltype(a)(~a); }>(type);
       }},
      {"shl", shift},
      {"shr", shift},
      // Data Movement and Conversion: mov, prmt, cvt
      {"mov", move},
      {"prmt", [](Opcode &o, Instruction &in) { o.need("b32"), in.run = run<uint32_t, permute>; }},
      {"cvt", convert},
      // Control Flow: ret, exit (bra is read by the parser)
      {"ret", [](Opcode &, Instruction &in) { in.flow = Instruction::Exit, in.results = 0; }},
      {"exit", [](Opcode &, Instruction &in) { in.flow = Instruction::Exit, in.results = 0; }},
  };
  return table;
}
