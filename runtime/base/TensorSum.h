//===- TensorSum.h - A checksum that does not depend on the mesh ----------===//
// The sum of a tensor is the sum over its elements of a hash of the element's global index and bits. Each rank adds up
// its blocks. Another mesh has other blocks but gets the same sum. For a given index the hash is one-to-one, so a
// single wrong element is always found.
//===----------------------------------------------------------------------===//
#ifndef PCRT_BASE_TENSORSUM_H
#define PCRT_BASE_TENSORSUM_H

#include <cstdint>
#include <map>
#include <string>

namespace pcrt {

/// The sum of elements of 32 bits: two sums of 32 bits, each modulo 2^32.
struct TensorSum {
  uint32_t low = 0, high = 0;

  /// Adds `count` elements, of which the first is element `first` of its tensor (row major). If `copy` is not null,
  /// also copies the elements to `copy` in the same pass, at little extra cost.
  void add(int64_t first, const void *elements, int64_t count, void *copy = nullptr);

  TensorSum &operator+=(const TensorSum &other) {
    low += other.low;
    high += other.high;
    return *this;
  }
  bool operator==(const TensorSum &other) const { return low == other.low && high == other.high; }

  /// Returns the sum as 16 hexadecimal digits.
  std::string text() const;
};

/// Sums by tensor name: over the elements that this rank has written or read, or over all ranks.
using TensorSums = std::map<std::string, TensorSum>;

/// Returns the sum of `count` bytes. The bytes are read as elements of 4 bytes, the last one padded with zeros. `count`
/// is added as one more element.
TensorSum sumOfBytes(const void *bytes, int64_t count);

} // namespace pcrt

#endif // PCRT_BASE_TENSORSUM_H
