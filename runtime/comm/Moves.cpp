//===- Moves.cpp - The arithmetic of moves, without any transport ---------===//
// Every result element is computed by one thread, and addends are added in coordinate order: results do not depend on
// the number of threads or on the transport. Loops run over rows of contiguous elements.
//===----------------------------------------------------------------------===//
#include "comm/Moves.h"
#include "comm/Rows.h"

#include <algorithm>
#include <bit>
#include <cstring>

using namespace pcrt;

//===----------------------------------------------------------------------===//
// Shapes and checks
//===----------------------------------------------------------------------===//

const char *pcrt::moveKindName(int32_t kind) {
  const pcrt_move_facts *facts = pcrt_facts_of_move(kind);
  return facts ? facts->name : "unknown move";
}

static int64_t wholeElements(const pcrt_move_desc &desc) {
  int64_t whole = desc.outer * desc.extent * desc.inner;
  return desc.kind == PCRT_ALL_TO_ALL ? whole * desc.middle * desc.extent2 : whole;
}

int64_t pcrt::inElements(const pcrt_move_desc &desc, int n) {
  if (routedOf(desc))
    return (desc.reduction ? mostRowsOfExperts(desc, n) : mostRowsOfTokens(desc, n)) * desc.inner;
  return wholeElements(desc) / (pcrt_facts_of_move(desc.kind)->needs == PCRT_STATE_SPLIT ? n : 1);
}

int64_t pcrt::outElements(const pcrt_move_desc &desc, int n) {
  if (routedOf(desc))
    return (desc.reduction ? mostRowsOfTokens(desc, n) : mostRowsOfExperts(desc, n)) * desc.inner;
  return wholeElements(desc) / (pcrt_facts_of_move(desc.kind)->makes == PCRT_STATE_SPLIT ? n : 1);
}

std::string pcrt::describeMove(const pcrt_move_desc &desc, int n) {
  static const char *const dtypes[] = {"f32", "bf16", "i32", "i8"};
  auto number = [](int64_t value) { return std::to_string(value); };
  std::string text = std::string("'") + (desc.name ? desc.name : "?") + "' (" + moveKindName(desc.kind) + " " +
                     (desc.dtype >= 0 && desc.dtype <= PCRT_I8 ? dtypes[desc.dtype] : "?") + " [" + number(desc.outer) +
                     ", " + number(desc.extent);
  if (desc.kind == PCRT_ALL_TO_ALL)
    text += ", " + number(desc.middle) + ", " + number(desc.extent2);
  if (routedOf(desc))
    return text + ", " + number(desc.inner) + "], rows of " + number(routedOf(desc)) + " experts, " + number(n) +
           " ranks)";
  return text + ", " + number(desc.inner) + "], " + number(n) + " ranks)";
}

std::string pcrt::checkMove(const pcrt_move_desc &desc, const Group &group, const void *in, const void *out) {
  int n = group.size();
  auto bad = [&](const std::string &why) { return "malformed move " + describeMove(desc, n) + ": " + why; };
  const pcrt_move_facts *facts = pcrt_facts_of_move(desc.kind);
  if (!facts)
    return bad("unknown kind " + std::to_string(desc.kind));
  if (facts->way == PCRT_WAY_LINK)
    return bad("it is not a move between ranks");
  if (desc.dtype < PCRT_F32 || desc.dtype > PCRT_I8)
    return bad("unknown dtype " + std::to_string(desc.dtype));
  if (desc.dtype == PCRT_I8 && facts->needs == PCRT_STATE_PARTIAL)
    return bad("codes of weights cannot be added");
  if (facts->needs == PCRT_STATE_PARTIAL && desc.reduction != PCRT_SUM && desc.reduction != PCRT_MAX)
    return bad("unknown reduction " + std::to_string(desc.reduction));
  if (n < 1 || group.me < 0 || group.me >= n)
    return bad("this rank is not a member of the group");
  int64_t whole = elementBytes(desc.dtype);
  const int64_t sizes[] = {desc.outer, desc.extent, desc.inner, desc.middle, desc.extent2};
  for (int i = 0; i < (desc.kind == PCRT_ALL_TO_ALL ? 5 : 3); ++i)
    if (sizes[i] < 0 || __builtin_mul_overflow(whole, sizes[i], &whole))
      return bad("impossible sizes");
  bool shifts = facts->flags & PCRT_MOVE_SHIFTS, hasShift = desc.shift && !routedOf(desc);
  if ((hasShift || desc.with) && (!shifts || desc.shift < 0 || (desc.shift >= n && n > 1)))
    return bad("shift " + std::to_string(desc.shift));
  bool keepsShape = facts->needs != PCRT_STATE_SPLIT && facts->makes != PCRT_STATE_SPLIT;
  if (!keepsShape && desc.extent % n)
    return bad("extent " + std::to_string(desc.extent) + " is not a multiple of " + std::to_string(n));
  if (desc.kind == PCRT_ALL_TO_ALL && desc.extent2 % n)
    return bad("extent " + std::to_string(desc.extent2) + " is not a multiple of " + std::to_string(n));
  if (std::string problem = checkRows(desc); !problem.empty())
    return bad(problem);
  bool mayAlias = (facts->flags & PCRT_MOVE_IN_PLACE) || n == 1;
  auto inAt = reinterpret_cast<uintptr_t>(in), outAt = reinterpret_cast<uintptr_t>(out);
  uintptr_t inEnd = inAt + inElements(desc, n) * elementBytes(desc.dtype);
  uintptr_t outEnd = outAt + outElements(desc, n) * elementBytes(desc.dtype);
  if (inAt < outEnd && outAt < inEnd && !(mayAlias && inAt == outAt))
    return bad("source and result overlap");
  if ((!in && inEnd != inAt) || (!out && outEnd != outAt))
    return bad("null buffer");
  return "";
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

static float fromBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

/// Rounds to nearest, ties to even; NaNs stay NaNs.
static uint16_t toBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  uint32_t nan = (bits >> 16) | 0x40u;
  return uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

namespace {

/// The type in which elements are stored (`Stored`), and the type in which they are added (`Value`).
struct F32 {
  using Stored = float;
  using Value = float;
  static Value load(Stored x) { return x; }
  static Stored store(Value x) { return x; }
};
struct Bf16 {
  using Stored = uint16_t;
  using Value = float;
  static Value load(Stored x) { return fromBf16(x); }
  static Stored store(Value x) { return toBf16(x); }
};
struct I32 {
  using Stored = int32_t;
  using Value = int32_t;
  static Value load(Stored x) { return x; }
  static Stored store(Value x) { return x; }
};

struct Sum {
  static float apply(float a, float b) { return a + b; }
  static int32_t apply(int32_t a, int32_t b) { return int32_t(uint32_t(a) + uint32_t(b)); }
};
struct Max {
  static float apply(float a, float b) { return a > b || a != a ? a : b; }
  static int32_t apply(int32_t a, int32_t b) { return a > b ? a : b; }
};

} // namespace

/// Works on tiles that stay in the first-level cache: adds in a private buffer, which no pointer aliases so that the
/// loops vectorise, then copies the sums to all outs.
template <typename T, typename Op>
static void reduceTiles(const char *const *ins, int numIns, char *const *outs, int numOuts, int64_t lo, int64_t hi,
                        int64_t shift) {
  using Stored = T::Stored;
  constexpr int64_t tile = 2048;
  typename T::Value sums[tile];
  Stored results[tile];
  for (int64_t at = lo; at < hi; at += tile) {
    int64_t count = std::min(tile, hi - at);
    auto addend = [&](int k) { return reinterpret_cast<const Stored *>(ins[k]) + shift + at; };
    const Stored *first = addend(0);
    if (numIns == 1) {
      for (int64_t i = 0; i < count; ++i)
        sums[i] = T::load(first[i]);
    } else {
      const Stored *second = addend(1);
      for (int64_t i = 0; i < count; ++i)
        sums[i] = Op::apply(T::load(first[i]), T::load(second[i]));
    }
    for (int k = 2; k < numIns; ++k) {
      const Stored *next = addend(k);
      for (int64_t i = 0; i < count; ++i)
        sums[i] = Op::apply(sums[i], T::load(next[i]));
    }
    const void *tileResult = sums;
    if constexpr (sizeof(Stored) != sizeof(typename T::Value)) {
      for (int64_t i = 0; i < count; ++i)
        results[i] = T::store(sums[i]);
      tileResult = results;
    }
    for (int k = 0; k < numOuts; ++k)
      memcpy(outs[k] + at * sizeof(Stored), tileResult, count * sizeof(Stored));
  }
}

/// Calls `piece(at, row, offset, count)` for the pieces of [lo, hi) that lie in one row of `size` elements each.
template <typename F> static void byRow(int64_t lo, int64_t hi, int64_t size, F piece) {
  for (int64_t count; lo < hi; lo += count) {
    count = std::min(size - lo % size, hi - lo);
    piece(lo, lo / size, lo % size, count);
  }
}

/// Copies `count` elements of `bytes` bytes.
static void copyElements(char *to, int64_t toIndex, const char *from, int64_t fromIndex, int64_t count, int64_t bytes) {
  if (count > 0)
    memcpy(to + toIndex * bytes, from + fromIndex * bytes, count * bytes);
}

void pcrt::reduceElements(int32_t dtype, int32_t reduction, const char *const *ins, int numIns, char *const *outs,
                          int numOuts, int64_t lo, int64_t hi, int64_t shift) {
  using Fn = void (*)(const char *const *, int, char *const *, int, int64_t, int64_t, int64_t);
  static constexpr Fn table[3][2] = {
      {reduceTiles<F32, Sum>, reduceTiles<F32, Max>},
      {reduceTiles<Bf16, Sum>, reduceTiles<Bf16, Max>},
      {reduceTiles<I32, Sum>, reduceTiles<I32, Max>},
  };
  table[dtype][reduction](ins, numIns, outs, numOuts, lo, hi, shift);
}

//===----------------------------------------------------------------------===//
// The source of each element
//===----------------------------------------------------------------------===//

void pcrt::allReducePart(int64_t elements, int n, int me, int64_t *lo, int64_t *hi) {
  constexpr int64_t line = 64; // the elements of at least one cache line, for any dtype
  int64_t part = ((elements + n - 1) / n + line - 1) / line * line;
  *lo = std::min(elements, part * me);
  *hi = std::min(elements, part * (me + 1));
}

void pcrt::pullAllGather(const pcrt_move_desc &desc, int n, const char *const *ins, char *out, int64_t lo, int64_t hi) {
  int64_t bytes = elementBytes(desc.dtype);
  int64_t block = desc.extent / n * desc.inner; // the elements of one member in one row of `outer`
  byRow(lo, hi, block, [&](int64_t to, int64_t row, int64_t at, int64_t count) {
    copyElements(out, to, ins[row % n], row / n * block + at, count, bytes);
  });
}

void pcrt::pullReduceScatter(const pcrt_move_desc &desc, int n, int me, const char *const *ins, char *out, int64_t lo,
                             int64_t hi) {
  int64_t block = desc.extent / n * desc.inner;
  byRow(lo, hi, block, [&](int64_t to, int64_t row, int64_t, int64_t count) {
    int64_t shift = row * (n - 1) * block + me * block; // to + shift is in block `me` of the row
    reduceElements(desc.dtype, desc.reduction, ins, n, &out, 1, to, to + count, shift);
  });
}

void pcrt::pullAllToAll(const pcrt_move_desc &desc, int n, int me, const char *const *ins, char *out, int64_t lo,
                        int64_t hi) {
  int64_t bytes = elementBytes(desc.dtype);
  if (desc.reduction) { // the move is from extent2 to extent: it gathers the block of extent that `me` keeps
    // Elements in one source, per `outer`.
    int64_t kept = desc.extent / n * desc.middle * (desc.extent2 / n) * desc.inner;
    int64_t wide = desc.extent2 / n * desc.inner; // the width of one source in a row of `out`
    return byRow(lo, hi, wide, [&](int64_t to, int64_t part, int64_t at, int64_t count) {
      int64_t row = part / n, rowsKept = kept / wide, outer = row / rowsKept;
      copyElements(out, to, ins[part % n], (outer * n + me) * kept + row % rowsKept * wide + at, count, bytes);
    });
  }
  int64_t block = desc.extent2 / n * desc.inner, rows = desc.extent / n;
  byRow(lo, hi, block, [&](int64_t to, int64_t row, int64_t at, int64_t count) { // `row` is in [outer, extent, middle]
    int64_t middle = row % desc.middle, split = row / desc.middle % desc.extent,
            outer = row / desc.middle / desc.extent;
    int64_t source = ((outer * rows + split % rows) * desc.middle + middle) * n * block + me * block + at;
    copyElements(out, to, ins[split / rows], source, count, bytes);
  });
}

/// Copies block `me` of the root's value.
static void pullScatter(const pcrt_move_desc &desc, int n, int me, const char *root, char *out, int64_t lo,
                        int64_t hi) {
  int64_t block = desc.extent / n * desc.inner;
  byRow(lo, hi, block, [&](int64_t to, int64_t row, int64_t at, int64_t count) {
    copyElements(out, to, root, row * n * block + me * block + at, count, elementBytes(desc.dtype));
  });
}

const char *pcrt::carryOutShare(const pcrt_move_desc &desc, int n, int me, const char *const *ins, char *const *outs,
                                const ParallelFor &parallelFor) {
  if (routedOf(desc))
    return pullRows(desc, n, me, ins, outs[me], parallelFor);
  int64_t first = 0, last = outElements(desc, n);
  if (desc.kind == PCRT_ALL_REDUCE)
    allReducePart(last, n, me, &first, &last);
  if (last == first)
    return nullptr;
  parallelFor(last - first, [&](int64_t lo, int64_t hi) {
    switch (desc.kind) {
    case PCRT_ALL_REDUCE:
      return reduceElements(desc.dtype, desc.reduction, ins, n, outs, n, first + lo, first + hi);
    case PCRT_ALL_GATHER:
      return pullAllGather(desc, n, ins, outs[me], lo, hi);
    case PCRT_REDUCE_SCATTER:
      return pullReduceScatter(desc, n, me, ins, outs[me], lo, hi);
    case PCRT_ALL_TO_ALL:
      return pullAllToAll(desc, n, me, ins, outs[me], lo, hi);
    case PCRT_BROADCAST:
      return copyElements(outs[me], lo, ins[0], lo, hi - lo, elementBytes(desc.dtype));
    case PCRT_PERMUTE:
      return copyElements(outs[me], lo, ins[sourceOf(desc, n, me)], lo, hi - lo, elementBytes(desc.dtype));
    case PCRT_SCATTER:
      return pullScatter(desc, n, me, ins[0], outs[me], lo, hi);
    case PCRT_GATHER:
      return me ? void() : pullAllGather(desc, n, ins, outs[me], lo, hi);
    case PCRT_REDUCE:
      return me ? void() : reduceElements(desc.dtype, desc.reduction, ins, n, outs, 1, lo, hi);
    default:
      return; // the others are local
    }
  });
  return nullptr;
}

void pcrt::localMove(const pcrt_move_desc &desc, const Group &group, const void *in, void *out,
                     const ParallelFor &parallelFor) {
  int n = group.size(), me = group.me;
  int block = sourceOf(desc, n, me);
  int64_t bytes = elementBytes(desc.dtype);
  int64_t elements = desc.kind == PCRT_INSERT ? inElements(desc, n) : outElements(desc, n);
  const auto *from = static_cast<const char *>(in);
  auto *to = static_cast<char *>(out);
  bool whole = n == 1 || (desc.kind == PCRT_MASK && me == 0);
  if (elements == 0 || (whole && in == out))
    return;
  parallelFor(elements, [&](int64_t lo, int64_t hi) {
    if (whole)
      return copyElements(to, lo, from, lo, hi - lo, bytes);
    if (desc.kind == PCRT_MASK) {
      memset(to + lo * bytes, 0, (hi - lo) * bytes);
      return;
    }
    int64_t size = desc.extent / n * desc.inner;
    byRow(lo, hi, size, [&](int64_t element, int64_t row, int64_t at, int64_t count) {
      if (desc.kind == PCRT_SLICE)
        copyElements(to, element, from, (row * n + block) * size + at, count, bytes);
      else if (desc.kind == PCRT_INSERT)
        copyElements(to, (row * n + block) * size + at, from, element, count, bytes);
      else if (row % n == me) // pad
        copyElements(to, element, from, row / n * size + at, count, bytes);
      else
        memset(to + element * bytes, 0, count * bytes);
    });
  });
}
