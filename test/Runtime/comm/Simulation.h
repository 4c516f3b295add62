//===- Simulation.h - The required result of a move, element by element ---===//
// Written from the text of pcrt.h and nothing else. Values are compared as bits, because doubles would hide rounding.
//===----------------------------------------------------------------------===//
#ifndef PCRT_TEST_SIMULATION_H
#define PCRT_TEST_SIMULATION_H

#include "comm/Comm.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

using pcrt::Group;

using Bits = uint32_t; // an element of any dtype

inline float widen(int32_t dtype, Bits bits) { return std::bit_cast<float>(dtype == PCRT_BF16 ? bits << 16 : bits); }

inline Bits narrow(int32_t dtype, float value) {
  if (dtype == PCRT_F32)
    return std::bit_cast<Bits>(value);
  // Rounds to the nearest neighbour, or to the even one if both are equally near.
  Bits bits = std::bit_cast<Bits>(value), low = bits >> 16, rest = bits & 0xffff;
  return rest > 0x8000 || (rest == 0x8000 && (low & 1)) ? low + 1 : low;
}

/// Element `index` of the source of rank `rank`. Magnitudes differ, so that the order of addends changes the sum.
inline Bits element(int32_t dtype, int rank, int64_t index, uint64_t salt) {
  uint64_t x = (uint64_t(rank) * 1000003 + uint64_t(index)) * 0x9e3779b97f4a7c15u + salt;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 32;
  if (dtype == PCRT_I32)
    return Bits(x);
  float value = float(int32_t(x)) * 4.6e-10f * (x >> 40 & 1 ? 1.0f : 1000.0f);
  return narrow(dtype, value);
}

/// The sum or maximum of `n` addends in order, each from `addend(i)`.
template <typename F> Bits combine(const pcrt_move_desc &desc, int64_t n, F addend) {
  if (desc.dtype == PCRT_I32) {
    int32_t result = int32_t(addend(0));
    for (int64_t i = 1; i < n; ++i) {
      int32_t next = int32_t(addend(i));
      result = desc.reduction == PCRT_MAX ? std::max(result, next) : int32_t(uint32_t(result) + uint32_t(next));
    }
    return Bits(result);
  }
  float result = widen(desc.dtype, addend(0));
  for (int64_t i = 1; i < n; ++i) {
    float next = widen(desc.dtype, addend(i));
    result = desc.reduction == PCRT_MAX ? std::max(result, next) : result + next;
  }
  return narrow(desc.dtype, result);
}

/// The sizes of a move's buffers on this rank, and the elements of the result.
struct Expected {
  int64_t inCount, outCount;
  std::vector<Bits> out;
  bool isDefined = true; ///< on this rank
};

inline Expected simulate(const pcrt_move_desc &d, const Group &group, uint64_t salt) {
  int64_t n = group.size(), me = group.me, block = d.with ? (d.shift + n - me) % n : (me + n - d.shift) % n;
  auto value = [&](int64_t member, int64_t index) { return element(d.dtype, group.ranks[member], index, salt); };
  auto all = [&](int64_t index) { return combine(d, n, [&](int64_t member) { return value(member, index); }); };
  int64_t whole = d.outer * d.extent * d.inner, part = d.extent / n;
  Expected e;
  auto &out = e.out;
  auto loop = [&](int64_t extent, auto f) {
    for (int64_t o = 0; o < d.outer; ++o)
      for (int64_t x = 0; x < extent; ++x)
        for (int64_t i = 0; i < d.inner; ++i)
          out.push_back(f(o, x, i));
  };
  e.inCount = whole;
  switch (d.kind) {
  case PCRT_ALL_REDUCE:
    loop(d.extent, [&](int64_t o, int64_t x, int64_t i) { return all((o * d.extent + x) * d.inner + i); });
    break;
  case PCRT_ALL_GATHER:
    e.inCount = whole / n;
    loop(d.extent,
         [&](int64_t o, int64_t x, int64_t i) { return value(x / part, (o * part + x % part) * d.inner + i); });
    break;
  case PCRT_REDUCE_SCATTER:
    loop(part, [&](int64_t o, int64_t x, int64_t i) { return all((o * d.extent + me * part + x) * d.inner + i); });
    break;
  case PCRT_SLICE:
    loop(part,
         [&](int64_t o, int64_t x, int64_t i) { return value(me, (o * d.extent + block * part + x) * d.inner + i); });
    break;
  case PCRT_INSERT: // the rest of the result is as the tests fill memory
    e.inCount = whole / n;
    loop(d.extent, [&](int64_t o, int64_t x, int64_t i) {
      return x / part == block ? value(me, (o * part + x % part) * d.inner + i)
                               : Bits(d.dtype == PCRT_BF16 ? 0x5555 : 0x55555555);
    });
    break;
  case PCRT_MASK:
    loop(d.extent,
         [&](int64_t o, int64_t x, int64_t i) { return me ? 0 : value(0, (o * d.extent + x) * d.inner + i); });
    break;
  case PCRT_PAD:
    e.inCount = whole / n;
    loop(d.extent, [&](int64_t o, int64_t x, int64_t i) {
      return x / part == me ? value(me, (o * part + x % part) * d.inner + i) : 0;
    });
    break;
  case PCRT_ALL_TO_ALL:
    whole *= d.middle * d.extent2;
    e.inCount = whole / n;
    if (d.reduction) { // out[o, x, m, y, i] is element [o, me * part + x, m, y, i]; y is the rank that holds it
      int64_t part2 = d.extent2 / n;
      for (int64_t o = 0; o < d.outer; ++o)
        for (int64_t x = 0; x < part; ++x)
          for (int64_t m = 0; m < d.middle; ++m)
            for (int64_t y = 0; y < d.extent2; ++y)
              for (int64_t i = 0; i < d.inner; ++i) {
                int64_t at = (o * d.extent + me * part + x) * d.middle + m;
                out.push_back(value(y / part2, (at * part2 + y % part2) * d.inner + i));
              }
      break;
    }
    // out[o, x, m, y, i] is element [o, x, m, me * part2 + y, i] of the whole tensor; x is the rank that holds it.
    for (int64_t o = 0; o < d.outer; ++o)
      for (int64_t x = 0; x < d.extent; ++x)
        for (int64_t m = 0; m < d.middle; ++m)
          for (int64_t y = 0; y < d.extent2 / n; ++y)
            for (int64_t i = 0; i < d.inner; ++i) {
              int64_t at = (o * part + x % part) * d.middle + m;
              at = (at * d.extent2 + me * (d.extent2 / n) + y) * d.inner + i;
              out.push_back(value(x / part, at));
            }
    break;
  case PCRT_BROADCAST:
    loop(d.extent, [&](int64_t o, int64_t x, int64_t i) { return value(0, (o * d.extent + x) * d.inner + i); });
    break;
  case PCRT_SCATTER:
    loop(part, [&](int64_t o, int64_t x, int64_t i) { return value(0, (o * d.extent + me * part + x) * d.inner + i); });
    break;
  case PCRT_GATHER:
    e.inCount = whole / n;
    loop(d.extent,
         [&](int64_t o, int64_t x, int64_t i) { return value(x / part, (o * part + x % part) * d.inner + i); });
    e.isDefined = me == 0;
    break;
  case PCRT_REDUCE:
    loop(d.extent, [&](int64_t o, int64_t x, int64_t i) { return all((o * d.extent + x) * d.inner + i); });
    e.isDefined = me == 0;
    break;
  case PCRT_PERMUTE:
    loop(d.extent, [&](int64_t o, int64_t x, int64_t i) { return value(block, (o * d.extent + x) * d.inner + i); });
    break;
  default:
    break;
  }
  e.outCount = int64_t(out.size());
  return e;
}

inline void putBits(int32_t dtype, char *at, int64_t index, Bits bits) {
  if (dtype == PCRT_BF16)
    reinterpret_cast<uint16_t *>(at)[index] = uint16_t(bits);
  else
    reinterpret_cast<Bits *>(at)[index] = bits;
}

inline Bits getBits(int32_t dtype, const char *at, int64_t index) {
  return dtype == PCRT_BF16 ? reinterpret_cast<const uint16_t *>(at)[index] : reinterpret_cast<const Bits *>(at)[index];
}

#endif // PCRT_TEST_SIMULATION_H
