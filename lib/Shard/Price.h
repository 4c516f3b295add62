//===- Price.h - The price of a choice of placements -----------------------------------===//
// Prices are compared by these figures, in this order: illegal choices, bytes on the wire or picoseconds of a machine,
// moves with traffic, moves without traffic, elements computed per rank, ops that read partial sums. They are integers,
// so that the choice is the same on every machine. They have 128 bits, because the bytes of large models overflow 64.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SHARD_PRICE_H
#define PC_LIB_SHARD_PRICE_H

#include <cmath>
#include <cstdint>
#include <tuple>

namespace pc {

/// Prices form an ordered group: they may be added, subtracted (a difference may be negative) and compared.
struct Price {
  __int128 traffic = 0; ///< illegal * 2^108 + bytes or picoseconds * 2^40 + traffic moves * 2^20 + free moves
  int64_t work = 0;     ///< elements that a rank computes
  int64_t late = 0;     ///< the number of ops that read partial sums; at equal cost, the earlier reduction is chosen

  static constexpr Price illegal() { return {static_cast<__int128>(1) << 108, 0, 0}; }
  /// One move that sends `bytes` (in units of 1/n of a byte on an axis of size n).
  static constexpr Price move(__int128 bytes) { return {(bytes << 40) + (bytes ? 1 << 20 : 1), 0, 0}; }
  /// The price of this many seconds, if prices are times.
  static Price seconds(double seconds) { return {static_cast<__int128>(std::llround(seconds * 1e12)) << 40, 0, 0}; }
  /// The seconds in this price, if prices are times.
  double seconds() const { return static_cast<double>(bytes()) * 1e-12; }
  constexpr bool isLegal() const { return traffic < (static_cast<__int128>(1) << 107); }
  /// The bytes in this price, in the units of `move`.
  constexpr __int128 bytes() const { return traffic >> 40; }

  constexpr Price &operator+=(const Price &o) {
    traffic += o.traffic, work += o.work, late += o.late;
    return *this;
  }
  constexpr Price operator+(Price o) const { return o += *this; }
  constexpr Price operator-(const Price &o) const { return {traffic - o.traffic, work - o.work, late - o.late}; }
  constexpr bool operator<(const Price &o) const {
    return std::tie(traffic, work, late) < std::tie(o.traffic, o.work, o.late);
  }
  constexpr bool operator==(const Price &o) const { return traffic == o.traffic && work == o.work && late == o.late; }
};

} // namespace pc

#endif
