//===- Fingerprint.h - Values of the one-device program as points ---------------------------===//
// A value of the one-device program is represented by a point of GF(2^61 - 1)^2. Sums are sums of points, linear ops
// are random linear maps, products are random multilinear maps, and every other op is a random function of its
// operands. Programs that are equal by the laws of sums have equal points. Other programs have equal points with a
// probability below (number of ops * degree) / 2^61.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PROOF_FINGERPRINT_H
#define PC_LIB_PROOF_FINGERPRINT_H

#include "llvm/ADT/DenseMapInfo.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/StringRef.h"

namespace pc::proof {

/// The fingerprint of a value: two elements of the field of 2^61 - 1 elements. Different values have equal points only
/// by chance.
struct Point {
  uint64_t x = 0, y = 0; ///< less than 2^61 - 1
  bool operator==(const Point &) const = default;
};
Point operator+(Point a, Point b);
Point operator-(Point a, Point b);
/// Returns `number` times a point. Every finite double is an element of the field. Equal non-finite numbers have equal
/// results.
Point scaled(Point point, double number);

/// A 2 x 2 matrix over the same field, which represents a linear op.
struct LinearMap {
  uint64_t a, b, c, d;
};
Point operator*(const LinearMap &matrix, Point point);
/// Returns the inverse of an element of the field that is not 0.
uint64_t inverse(uint64_t x);
/// Multiplies element by element. The point of a product is computed in this way from the mapped points of its
/// operands.
Point timesEach(Point a, Point b);

/// A keyed hash of the words that were added to it, and the random points and maps drawn from it.
class Key {
public:
  Key() = default;
  /// Returns a new secret key, from which others are derived.
  static Key drawn();
  /// Returns a key that is not secret.
  static Key of(llvm::StringRef seed) { return Key().add(seed); }
  Key &add(uint64_t word);
  Key &add(llvm::StringRef text);
  Key &add(Point point) { return add(point.x).add(point.y); }
  Point point() const { return {draw(0), draw(1)}; }
  LinearMap matrix() const { return {draw(2), draw(3), draw(4), draw(5)}; }

private:
  /// Returns one of the random numbers that follow from the added words.
  uint64_t draw(unsigned number) const;

  uint64_t a = 0, b = 0;
};

} // namespace pc::proof

template <> struct llvm::DenseMapInfo<pc::proof::Point> {
  static pc::proof::Point getEmptyKey() { return {~0ull, 0}; }
  static pc::proof::Point getTombstoneKey() { return {~0ull, 1}; }
  static unsigned getHashValue(const pc::proof::Point &point) { return static_cast<unsigned>(point.x ^ point.y >> 7); }
  static bool isEqual(const pc::proof::Point &a, const pc::proof::Point &b) { return a == b; }
};

#endif
