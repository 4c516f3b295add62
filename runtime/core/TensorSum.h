//===- TensorSum.h - a checksum that does not depend on the mesh ----------===//
//
// The sum of a tensor is the sum over its elements of a mix of the element's
// global index and its bits. Ranks add up over their blocks; another mesh adds
// up over others and gets the same. A mix is one-to-one for a given index, so
// that a single wrong element is always found.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_CORE_TENSORSUM_H
#define PCRT_CORE_TENSORSUM_H

#include <cstdint>
#include <map>
#include <string>

namespace pcrt {

/// The sum of elements of 32 bits: two sums of 32 bits, each modulo 2^32.
struct TensorSum {
  uint32_t low = 0, high = 0;

  /// Adds `count` elements, the first of which is number `first` of its tensor (row major).
  void add(int64_t first, const void *elements, int64_t count);

  TensorSum &operator+=(const TensorSum &other) {
    low += other.low;
    high += other.high;
    return *this;
  }
  bool operator==(const TensorSum &other) const { return low == other.low && high == other.high; }

  /// 16 hexadecimal digits.
  std::string text() const;
};

/// By name: of what this rank has written or read, or of all.
using TensorSums = std::map<std::string, TensorSum>;

/// The sum of some bytes, as of a tensor of them: 4 at a time, zeros behind the last one, and their number.
TensorSum sumOfBytes(const void *bytes, int64_t count);

} // namespace pcrt

#endif // PCRT_CORE_TENSORSUM_H
