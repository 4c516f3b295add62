//===- conformance.cpp - what every transport has to do -------------------===//
//
// usage: comm-conformance [--transport=NAME] [--ranks=N (virtual ones)]
// Runs as each rank of a run, under any transport. Every row of dtype x move x
// reduction is carried out over all groups of all meshes of this many ranks,
// on awkward sizes, and compared bit by bit with a simulation that is written
// element by element from the text of pcrt.h.
//
//===----------------------------------------------------------------------===//
#include "comm/Comm.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

using namespace pcrt;

static thread_local Comm *comm = nullptr;
static thread_local int64_t checks = 0;

[[noreturn]] static void leave(pcrt_status status, const std::string &message) {
  fprintf(stderr, "error: rank %d: %s\n", comm ? comm->rank() : -1, message.c_str());
  if (comm)
    comm->abort(status, message.c_str());
  _Exit(status);
}

static void require(pcrt_status status) {
  if (status != PCRT_OK)
    leave(status, comm->error());
}

//===----------------------------------------------------------------------===//
// The simulation: values as doubles would hide rounding, so as bits
//===----------------------------------------------------------------------===//

using Bits = uint32_t; // an element of any dtype

static float widen(int32_t dtype, Bits bits) { return std::bit_cast<float>(dtype == PCRT_BF16 ? bits << 16 : bits); }

static Bits narrow(int32_t dtype, float value) {
  if (dtype == PCRT_F32)
    return std::bit_cast<Bits>(value);
  // The nearest of the two neighbours, the even one of a tie.
  Bits bits = std::bit_cast<Bits>(value), low = bits >> 16, rest = bits & 0xffff;
  return rest > 0x8000 || (rest == 0x8000 && (low & 1)) ? low + 1 : low;
}

/// Element `index` of rank `rank`'s source: magnitudes differ, so that the order of addends shows.
static Bits element(int32_t dtype, int rank, int64_t index, uint64_t salt) {
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
template <typename F> static Bits combine(const pcrt_move_desc &desc, int64_t n, F addend) {
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

namespace {
struct Expected {
  int64_t inCount, outCount;
  std::vector<Bits> out;
};
} // namespace

static Expected simulate(const pcrt_move_desc &d, const Group &group, uint64_t salt) {
  int64_t n = group.size(), me = group.me;
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
         [&](int64_t o, int64_t x, int64_t i) { return value(me, (o * d.extent + me * part + x) * d.inner + i); });
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
    // out[o, x, m, y, i] is element [o, x, m, me * part2 + y, i] of the whole tensor; x says who holds it.
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
  default:
    break;
  }
  e.outCount = int64_t(out.size());
  return e;
}

//===----------------------------------------------------------------------===//
// One row
//===----------------------------------------------------------------------===//

static void putBits(int32_t dtype, char *at, int64_t index, Bits bits) {
  if (dtype == PCRT_BF16)
    reinterpret_cast<uint16_t *>(at)[index] = uint16_t(bits);
  else
    reinterpret_cast<Bits *>(at)[index] = bits;
}

static Bits getBits(int32_t dtype, const char *at, int64_t index) {
  return dtype == PCRT_BF16 ? reinterpret_cast<const uint16_t *>(at)[index] : reinterpret_cast<const Bits *>(at)[index];
}

/// Three threads, cut unevenly.
static void threeThreads(void *, int64_t items, ParallelFor::Body body, void *arg) {
  int64_t first = items / 5, second = items / 5 + items / 3;
  std::thread a([&] { body(arg, 0, first); }), b([&] { body(arg, first, second); });
  body(arg, second, items);
  a.join();
  b.join();
}

enum class Where : uint8_t { Arena, InPlace, Plain, PlainInPlace };

static void checkPlace(const pcrt_move_desc &desc, const Group &group, const Expected &expected, uint64_t salt,
                       Where where, bool threads, char *arena) {
  constexpr int64_t guard = 64; // bytes behind the result that have to stay as they are
  int64_t bytes = desc.dtype == PCRT_BF16 ? 2 : 4;
  int64_t inBytes = expected.inCount * bytes, outBytes = expected.outCount * bytes;
  int64_t outAt = (inBytes + guard + 63) / 64 * 64;
  std::vector<char> plain;
  bool inPlace = where == Where::InPlace || where == Where::PlainInPlace;
  bool usePlain = where == Where::Plain || where == Where::PlainInPlace;
  if (usePlain)
    plain.resize(outAt + outBytes + guard);
  char *in = usePlain ? plain.data() : arena;
  char *out = inPlace ? in : in + outAt;
  memset(out, 0x55, outBytes + guard);
  for (int64_t i = 0; i < expected.inCount; ++i)
    putBits(desc.dtype, in, i, element(desc.dtype, comm->rank(), i, salt));
  require(comm->move(desc, group, in, out, threads ? ParallelFor(nullptr, threeThreads) : ParallelFor()));
  auto text = [&] {
    return std::string(desc.name) + " kind " + std::to_string(desc.kind) + " dtype " + std::to_string(desc.dtype) +
           " reduction " + std::to_string(desc.reduction) + " [" + std::to_string(desc.outer) + ", " +
           std::to_string(desc.extent) + ", " + std::to_string(desc.middle) + ", " + std::to_string(desc.extent2) +
           ", " + std::to_string(desc.inner) + "] group " + group.name + " of " + std::to_string(group.size()) +
           " where " + std::to_string(int(where));
  };
  for (int64_t i = 0; i < expected.outCount; ++i)
    if (getBits(desc.dtype, out, i) != expected.out[i])
      leave(PCRT_VERIFICATION, text() + ": element " + std::to_string(i) + " is wrong");
  for (int64_t i = 0; i < guard; ++i)
    if (out[outBytes + i] != 0x55)
      leave(PCRT_VERIFICATION, text() + ": wrote behind its result");
  if (!inPlace)
    for (int64_t i = 0; i < expected.inCount; ++i)
      if (getBits(desc.dtype, in, i) != element(desc.dtype, comm->rank(), i, salt))
        leave(PCRT_VERIFICATION, text() + ": changed its source");
  ++checks;
}

/// One move, from and to everywhere it may be.
static void checkRow(const pcrt_move_desc &desc, const Group &group, bool threads, char *arena) {
  uint64_t salt = uint64_t(checks) * 77;
  Expected expected = simulate(desc, group, salt);
  bool mayAlias = desc.kind == PCRT_ALL_REDUCE || desc.kind == PCRT_MASK;
  for (Where where : {Where::Arena, Where::InPlace, Where::Plain, Where::PlainInPlace})
    if (mayAlias || where == Where::Arena || where == Where::Plain)
      checkPlace(desc, group, expected, salt, where, threads, arena);
}

//===----------------------------------------------------------------------===//
// All rows
//===----------------------------------------------------------------------===//

/// Calls `f` with every mesh of `ranks` ranks with up to three axes.
static void forAllMeshes(int ranks, const std::function<void(const std::vector<int> &)> &f) {
  f({ranks});
  for (int a = 2; a < ranks; ++a)
    for (int b = 2; a * b <= ranks; ++b) {
      if (a * b == ranks)
        f({a, b});
      else if (ranks % (a * b) == 0)
        f({a, b, ranks / (a * b)});
    }
}

/// The group of this rank along `axes` (major to minor) of `mesh`.
static Group makeGroup(const std::vector<int> &mesh, const std::vector<int> &axes, int id) {
  std::vector<int> strides(mesh.size(), 1);
  for (int axis = int(mesh.size()) - 2; axis >= 0; --axis)
    strides[axis] = strides[axis + 1] * mesh[axis + 1];
  Group group;
  group.id = id;
  int base = comm->rank(), count = 1;
  for (int axis : axes) {
    base -= comm->rank() / strides[axis] % mesh[axis] * strides[axis];
    count *= mesh[axis];
    group.name += (group.name.empty() ? "" : ",") + std::string("a") + std::to_string(axis);
  }
  for (int index = 0; index < count; ++index) {
    int rank = base, rest = index;
    for (int i = int(axes.size()) - 1; i >= 0; --i) {
      rank += rest % mesh[axes[i]] * strides[axes[i]];
      rest /= mesh[axes[i]];
    }
    if (rank == comm->rank())
      group.me = index;
    group.ranks.push_back(rank);
  }
  return group;
}

static void checkGroup(const Group &group, char *arena) {
  int64_t n = group.size();
  const int64_t shapes[][3] = {{1, n, 1}, {3, n * 5, 7}, {1, n * 3, 11}, {0, n, 3}, {2, 0, 3}, {1, n * 521, 3}};
  for (int32_t dtype : {PCRT_F32, PCRT_BF16, PCRT_I32})
    for (int32_t kind = PCRT_ALL_REDUCE; kind <= PCRT_PAD; ++kind)
      for (int32_t reduction : {PCRT_SUM, PCRT_MAX}) {
        bool reduces = kind == PCRT_ALL_REDUCE || kind == PCRT_REDUCE_SCATTER;
        if (reduction == PCRT_MAX && !reduces)
          continue;
        int shape = 0;
        for (auto [outer, extent, inner] : shapes) {
          if (extent > 500 * n && group.id > 0)
            continue; // once is enough
          pcrt_move_desc desc{"row", kind, 0, dtype, reduction, outer, extent, inner, 1, 1, "forward"};
          if (kind == PCRT_ALL_REDUCE || kind == PCRT_MASK) {
            desc.outer = outer * extent * inner;
            desc.extent = desc.inner = 1;
          }
          if (kind == PCRT_ALL_TO_ALL) {
            desc.middle = 1 + shape % 3;
            desc.extent2 = n * (1 + shape % 2);
          }
          bool threads = ++shape == 2;
          checkRow(desc, group, threads, arena);
        }
      }
}

static void checkSpecialValues(const Group &group, float *arena) {
  // Minus zero survives, NaNs survive a max from any member, infinities add up.
  int n = group.size();
  float *in = arena, *out = arena + 64;
  in[0] = -0.0f;
  in[1] = group.me == n - 1 ? __builtin_nanf("") : float(group.me);
  in[2] = group.me == 0 ? __builtin_nanf("") : float(group.me);
  in[3] = group.me == 0 ? -__builtin_inff() : 1.0f;
  pcrt_move_desc desc{"special", PCRT_ALL_REDUCE, 0, PCRT_F32, PCRT_SUM, 4, 1, 1, 1, 1, "forward"};
  require(comm->move(desc, group, in, out));
  if (std::bit_cast<Bits>(out[0]) != 0x80000000u || out[1] == out[1] || out[3] != -__builtin_inff())
    leave(PCRT_VERIFICATION, "special values of sum");
  desc.reduction = PCRT_MAX;
  require(comm->move(desc, group, in, out));
  if (out[1] == out[1] || out[2] == out[2] || (n > 1 && out[3] != 1.0f))
    leave(PCRT_VERIFICATION, "special values of max");
}

static void checkMalformed(const Group &group, char *arena) {
  auto refused = [&](pcrt_move_desc desc, const void *in, void *out, const char *words) {
    if (comm->move(desc, group, in, out) != PCRT_INTERNAL || comm->error().find(words) == std::string::npos)
      leave(PCRT_VERIFICATION, std::string("not refused: ") + words + " (" + comm->error() + ")");
  };
  pcrt_move_desc good{"bad", PCRT_ALL_GATHER, 0, PCRT_F32, PCRT_SUM, 1, group.size(), 4, 1, 1, "forward"};
  pcrt_move_desc bad = good;
  bad.kind = 99;
  refused(bad, arena, arena + 4096, "unknown kind 99");
  bad = good;
  bad.dtype = -1;
  refused(bad, arena, arena + 4096, "unknown dtype");
  bad = good;
  bad.outer = -1;
  refused(bad, arena, arena + 4096, "impossible sizes");
  bad = good;
  bad.outer = bad.inner = int64_t(1) << 40;
  refused(bad, arena, arena + 4096, "impossible sizes");
  refused(good, nullptr, arena, "null buffer");
  if (group.size() > 1) {
    bad = good;
    bad.extent = group.size() + 1;
    refused(bad, arena, arena + 4096, "not a multiple");
    refused(good, arena, arena + 8, "overlap");
    bad.kind = PCRT_ALL_REDUCE;
    refused(bad, arena, arena + 8, "overlap");
  }
}

/// Everything that one rank does.
static pcrt_status runRank(Comm &mine) {
  comm = &mine;
  checks = 0;
  int size = comm->size();
  char *arena;
  // Sizes differ between ranks.
  int64_t arenaBytes = (64 << 20) + comm->rank() * 12345;
  require(comm->allocateArena(arenaBytes, &arena));
  if (reinterpret_cast<uintptr_t>(arena) % 64)
    leave(PCRT_VERIFICATION, "arena not aligned");
  for (int64_t i = 0; i < arenaBytes; i += 4093)
    if (arena[i])
      leave(PCRT_VERIFICATION, "arena not zero");

  for (int64_t n : {0, 1, 13, 100000}) {
    std::vector<char> mine(n, char(comm->rank() + 1)), all(n * size + 1);
    require(comm->allGatherBytes(mine.data(), n, all.data()));
    for (int64_t i = 0; i < n * size; ++i)
      if (all[i] != char(i / n + 1))
        leave(PCRT_VERIFICATION, "allGatherBytes");
    require(comm->barrier());
  }

  int id = 0;
  forAllMeshes(size, [&](const std::vector<int> &mesh) {
    std::vector<std::vector<int>> lists;
    for (int set = 1; set < 1 << mesh.size(); ++set) {
      std::vector<int> axes;
      for (int axis = 0; axis < int(mesh.size()); ++axis)
        if (set >> axis & 1)
          axes.push_back(axis);
      do
        lists.push_back(axes);
      while (std::next_permutation(axes.begin(), axes.end()));
    }
    for (const std::vector<int> &axes : lists)
      checkGroup(makeGroup(mesh, axes, id++), arena);
  });

  Group world = makeGroup({size}, {0}, 0);
  checkSpecialValues(world, reinterpret_cast<float *>(arena));
  checkMalformed(world, arena);
  // Large ones, that no single tile or cache holds.
  for (int32_t dtype : {PCRT_F32, PCRT_BF16})
    for (int32_t kind : {PCRT_ALL_REDUCE, PCRT_ALL_GATHER, PCRT_REDUCE_SCATTER}) {
      pcrt_move_desc desc{"large", kind, 0, dtype, PCRT_SUM, 1, size * int64_t(50021), 3, 1, 1, "forward"};
      checkRow(desc, world, dtype == PCRT_F32, arena);
    }
  require(comm->barrier());
  if (comm->rank() == 0)
    printf("%s, %d ranks: %ld checks passed on each rank\n", comm->transport(), size, long(checks));
  return PCRT_OK;
}

int main(int argc, char **argv) {
  int ranks = 1;
  for (int i = 1; i < argc; ++i) {
    if (!strncmp(argv[i], "--transport=", 12)) {
      setenv("PCRT_TRANSPORT", argv[i] + 12, 1);
    } else if (!strncmp(argv[i], "--ranks=", 8) && atoi(argv[i] + 8) > 0) {
      ranks = atoi(argv[i] + 8);
    } else {
      fprintf(stderr, "usage: comm-conformance [--transport=NAME] [--ranks=N]\n");
      return PCRT_USAGE;
    }
  }
  std::string error;
  pcrt_status status = runRanks(ranks, runRank, &error);
  if (!error.empty())
    fprintf(stderr, "error: %s\n", error.c_str());
  return status;
}
