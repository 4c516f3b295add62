//===- Fingerprint.h - Values of the one-device program as points ---------------------------===//
// A value of the one-device program is read as a point of GF(2^61 - 1)^2: sums are sums, linear ops random linear maps,
// products random multilinear ones, everything else a random function of its operands. Programs that are equal up to
// the laws of sums have equal points; two others meet with a probability below (number of ops * degree) / 2^61.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PROOF_FINGERPRINT_H
#define PC_LIB_PROOF_FINGERPRINT_H

#include "llvm/ADT/DenseMapInfo.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/StringRef.h"

namespace pc::proof {

/// What stands for a value: two elements of the field of 2^61 - 1 elements. Different values have equal points by
/// chance only.
struct Point {
  uint64_t x = 0, y = 0; ///< less than 2^61 - 1
  bool operator==(const Point &) const = default;
};
Point operator+(Point a, Point b);
Point operator-(Point a, Point b);
/// `number` times a point. Every finite double is an element of the field; of others, equal ones have equal results.
Point scaled(Point point, double number);

/// A matrix of two rows and columns, over the same field: what stands for an op that is linear.
struct LinearMap {
  uint64_t a, b, c, d;
};
Point operator*(const LinearMap &matrix, Point point);
/// The inverse of an element of the field that is not 0.
uint64_t inverse(uint64_t x);
/// The product element by element, which turns the images of operands into that of their product.
Point timesEach(Point a, Point b);

/// A keyed hash of the words that were added to it, and the random points and maps that belong to it.
class Key {
public:
  Key() = default;
  /// A new secret, with which others begin.
  static Key drawn();
  /// One that anybody can have.
  static Key of(llvm::StringRef seed) { return Key().add(seed); }
  Key &add(uint64_t word);
  Key &add(llvm::StringRef text);
  Key &add(Point point) { return add(point.x).add(point.y); }
  Point point() const { return {draw(0), draw(1)}; }
  LinearMap matrix() const { return {draw(2), draw(3), draw(4), draw(5)}; }

private:
  /// One of the random numbers that belong to the words that were added.
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
