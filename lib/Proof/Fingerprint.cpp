//===- Fingerprint.cpp - Values of the one-device program as points -------------------------===//
// Arithmetic modulo the prime 2^61 - 1, on points of two coordinates, and keys from which such points are drawn.
// Fingerprint.h bounds the probability that two different values have equal points. Keys are new in every proof, unless
// a module states the fingerprint that it must have.
//===-----------------------------------------------------------------------------===//
#include "Fingerprint.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

using namespace pc::proof;
using Wide = unsigned __int128;

static constexpr uint64_t prime = (uint64_t(1) << 61) - 1;

static uint64_t reduce(uint64_t x) {
  x = (x & prime) + (x >> 61);
  return x >= prime ? x - prime : x;
}

static uint64_t times(uint64_t a, uint64_t b) {
  Wide product = static_cast<Wide>(a) * b;
  return reduce((static_cast<uint64_t>(product) & prime) + static_cast<uint64_t>(product >> 61));
}

/// The exclusive or of the two halves of a 128-bit product, which mixes all bits of both numbers.
static uint64_t fold(uint64_t a, uint64_t b) {
  Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

Point pc::proof::operator+(Point a, Point b) { return {reduce(a.x + b.x), reduce(a.y + b.y)}; }
Point pc::proof::operator-(Point a, Point b) { return {reduce(a.x + prime - b.x), reduce(a.y + prime - b.y)}; }
Point pc::proof::timesEach(Point a, Point b) { return {times(a.x, b.x), times(a.y, b.y)}; }

Point pc::proof::operator*(const LinearMap &matrix, Point point) {
  return {reduce(times(matrix.a, point.x) + times(matrix.b, point.y)),
          reduce(times(matrix.c, point.x) + times(matrix.d, point.y))};
}

uint64_t pc::proof::inverse(uint64_t x) {
  uint64_t result = 1; // x to the power of prime - 2
  for (uint64_t bits = prime - 2; bits; bits >>= 1, x = times(x, x))
    result = bits & 1 ? times(result, x) : result;
  return result;
}

/// A finite double is digits times a power of two, and both are elements of the field. A negative number is the prime
/// minus its absolute value.
Point pc::proof::scaled(Point point, double number) {
  uint64_t factor = reduce(std::bit_cast<uint64_t>(number));
  if (std::isfinite(number)) {
    int exponent = 0;
    auto digits = static_cast<uint64_t>(std::ldexp(std::frexp(std::abs(number), &exponent), 53));
    exponent = ((exponent - 53) % 61 + 61) % 61; // since 2^61 = 1 in the field
    factor = times(reduce(digits), uint64_t(1) << exponent);
    factor = number < 0 ? reduce(prime - factor) : factor;
  }
  return {times(factor, point.x), times(factor, point.y)};
}

/// A key from the system's source of random numbers.
Key Key::drawn() {
  std::random_device device;
  auto word = [&] { return static_cast<uint64_t>(device()) << 32 | device(); };
  Key key;
  key.a = word();
  key.b = word();
  return key;
}

Key &Key::add(uint64_t word) {
  a = fold(a ^ word, 0x9e3779b97f4a7c15ull);
  b = fold(b ^ word, a ^ 0xd1342543de82ef95ull);
  return *this;
}

/// The length comes first, so that two texts added one after the other differ from any other pair of texts.
Key &Key::add(llvm::StringRef text) {
  add(text.size());
  for (; !text.empty(); text = text.drop_front(std::min<size_t>(8, text.size()))) {
    uint64_t word = 0;
    std::memcpy(&word, text.data(), std::min<size_t>(8, text.size()));
    add(word);
  }
  return *this;
}

uint64_t Key::draw(unsigned number) const {
  static constexpr uint64_t odd[] = {0xa0761d6478bd642full, 0xe7037ed1a0b428dbull, 0x8ebc6af09c88c6e3ull,
                                     0x589965cc75374cc3ull, 0x1d8e4e27c47d124full, 0xeb44accab455d165ull};
  return reduce(fold(fold(a ^ odd[number], b), b ^ odd[(number + 1) % 6]));
}
