//===- conformance.cpp - The required results of every transport ----------===//
// usage: comm-conformance [--transport=NAME] [--ranks=N (virtual ones)] [--device]
// Runs as each rank of a run, under any transport; with --device on the rank's CUDA device. Every row of dtype x move x
// reduction is carried out over all groups of all meshes of this many ranks, with awkward sizes, and compared bit by
// bit with a simulation written element by element from the text of pcrt.h.
//===----------------------------------------------------------------------===//
#include "Mover.h"
#include "Rows.h"
#include "Simulation.h"
#include "ThisRank.h"
#include "base/Failure.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

using namespace pcrt;

static thread_local Mover *mover = nullptr;
static thread_local int64_t checks = 0;
static bool onDevice = false;

//===----------------------------------------------------------------------===//
// One row
//===----------------------------------------------------------------------===//

enum class Where : uint8_t { Arena, InPlace, Plain, PlainInPlace };

/// Returns true if `got` is a possible sum of NCCL, which adds in any order, and rounds to bf16 after each addition.
static bool nearEnough(const pcrt_move_desc &desc, const Group &group, Bits got, Bits expected, double magnitude) {
  if (got == expected)
    return true;
  if (desc.dtype == PCRT_I32 || desc.reduction == PCRT_MAX)
    return false;
  double unit = desc.dtype == PCRT_BF16 ? 1.0 / 256 : 1.0 / (1 << 24);
  return std::fabs(double(widen(desc.dtype, got)) - widen(desc.dtype, expected)) <= group.size() * unit * magnitude;
}

/// The places of a row's buffers: source, gap, result, and bytes after it that must not change.
namespace {
struct Layout {
  static constexpr int64_t guard = 64;
  int64_t inBytes, outBytes, outAt, bytes;

  Layout(const pcrt_move_desc &desc, const Expected &expected, bool inPlace) {
    int64_t width = desc.dtype == PCRT_BF16 ? 2 : 4;
    inBytes = expected.inCount * width;
    outBytes = expected.outCount * width;
    outAt = inPlace ? 0 : (inBytes + guard + 255) / 256 * 256;
    bytes = std::max(inBytes, outAt + outBytes + guard);
  }
};
} // namespace

static void fill(const pcrt_move_desc &desc, const Expected &expected, const Layout &layout, uint64_t salt,
                 char *image) {
  memset(image + layout.outAt, 0x55, layout.outBytes + Layout::guard);
  for (int64_t i = 0; i < expected.inCount; ++i)
    putBits(desc.dtype, image, i, element(desc.dtype, comm->rank(), i, salt));
}

/// Compares what a move wrote to `image` with what it should have written.
static void compare(const pcrt_move_desc &desc, const Group &group, const Expected &expected, const Layout &layout,
                    uint64_t salt, Where where, const char *image) {
  auto wrong = [&](const std::string &what) {
    leave(PCRT_VERIFICATION, std::string(desc.name) + " kind " + std::to_string(desc.kind) + " dtype " +
                                 std::to_string(desc.dtype) + " reduction " + std::to_string(desc.reduction) + " [" +
                                 std::to_string(desc.outer) + ", " + std::to_string(desc.extent) + ", " +
                                 std::to_string(desc.middle) + ", " + std::to_string(desc.extent2) + ", " +
                                 std::to_string(desc.inner) + "] group " + group.name + " of " +
                                 std::to_string(group.size()) + " where " + std::to_string(int(where)) + ": " + what);
  };
  const char *out = image + layout.outAt;
  for (int64_t i = 0; i < expected.outCount && expected.isDefined; ++i) {
    Bits got = getBits(desc.dtype, out, i);
    bool reduces = desc.kind == PCRT_ALL_REDUCE || desc.kind == PCRT_REDUCE_SCATTER || desc.kind == PCRT_REDUCE;
    bool good = mover->isExact() || !reduces ? got == expected.out[i]
                                             : nearEnough(desc, group, got, expected.out[i], 1000.0 * group.size());
    if (!good)
      wrong("element " + std::to_string(i) + " is " + std::to_string(got) + ", not " + std::to_string(expected.out[i]));
  }
  for (int64_t i = 0; i < Layout::guard; ++i)
    if (layout.outAt + layout.outBytes + i >= layout.inBytes && out[layout.outBytes + i] != 0x55)
      wrong("wrote past its result");
  for (int64_t i = 0; i < expected.inCount && layout.outAt > 0; ++i)
    if (getBits(desc.dtype, image, i) != element(desc.dtype, comm->rank(), i, salt))
      wrong("changed its source");
  ++checks;
}

static void checkPlace(const pcrt_move_desc &desc, const Group &group, const Expected &expected, uint64_t salt,
                       Where where, Mover::Way way) {
  Layout layout(desc, expected, where == Where::InPlace || where == Where::PlainInPlace);
  std::vector<char> image(layout.bytes);
  fill(desc, expected, layout, salt, image.data());
  if (where == Where::Plain || where == Where::PlainInPlace) {
    require(comm->move(desc, group, image.data(), image.data() + layout.outAt));
  } else {
    mover->write(0, image.data(), layout.bytes);
    int64_t in = 0;
    if (pcrt_status status = mover->move(&desc, 1, group, &in, &layout.outAt, way); status != PCRT_OK)
      leave(status, mover->error());
    mover->read(0, image.data(), layout.bytes);
  }
  compare(desc, group, expected, layout, salt, where, image.data());
}

/// Checks one move with all positions that its buffers may have.
static void checkRow(const pcrt_move_desc &desc, const Group &group, Mover::Way way) {
  if (!mover->carries(desc, group))
    return;
  uint64_t salt = uint64_t(checks) * 77;
  Expected expected = simulate(desc, group, salt);
  bool mayAlias = pcrt_facts_of_move(desc.kind)->flags & PCRT_MOVE_IN_PLACE;
  for (Where where : {Where::Arena, Where::InPlace, Where::Plain, Where::PlainInPlace}) {
    bool plain = where == Where::Plain || where == Where::PlainInPlace;
    if ((mayAlias || where == Where::Arena || where == Where::Plain) && !(plain && onDevice))
      checkPlace(desc, group, expected, salt, where, way);
  }
}

/// Checks several moves of one group in one call.
static void checkTogether(const pcrt_move_desc *moves, int count, const Group &group) {
  std::vector<Expected> expected;
  std::vector<Layout> layouts;
  std::vector<int64_t> starts, ins, outs;
  std::vector<char> image;
  uint64_t salt = uint64_t(checks) * 77;
  for (int i = 0; i < count; ++i) {
    if (!mover->carries(moves[i], group))
      return;
    expected.push_back(simulate(moves[i], group, salt + i));
    layouts.emplace_back(moves[i], expected[i], false);
    int64_t start = (int64_t(image.size()) + 255) / 256 * 256;
    starts.push_back(start);
    ins.push_back(start);
    outs.push_back(start + layouts[i].outAt);
    image.resize(start + layouts[i].bytes);
    fill(moves[i], expected[i], layouts[i], salt + i, image.data() + start);
  }
  mover->write(0, image.data(), int64_t(image.size()));
  pcrt_status status = mover->move(moves, count, group, ins.data(), outs.data(), Mover::Way::Threads);
  if (status != PCRT_OK)
    leave(status, mover->error());
  mover->read(0, image.data(), int64_t(image.size()));
  for (int i = 0; i < count; ++i)
    compare(moves[i], group, expected[i], layouts[i], salt + i, Where::Arena, image.data() + starts[i]);
}

//===----------------------------------------------------------------------===//
// All rows
//===----------------------------------------------------------------------===//

/// Appends all rows over one group to `moves`.
static void addRows(const Group &group, bool large, std::vector<pcrt_move_desc> &moves) {
  int64_t n = group.size();
  const int64_t shapes[][3] = {{1, n, 1}, {3, n * 5, 7}, {1, n * 3, 11}, {0, n, 3}, {2, 0, 3}, {1, n * 521, 3}};
  for (int32_t dtype : {PCRT_F32, PCRT_BF16, PCRT_I32})
    for (int32_t kind = 0; kind < PCRT_NUM_MOVE_KINDS; ++kind)
      for (int32_t reduction : {PCRT_SUM, PCRT_MAX}) {
        const pcrt_move_facts *facts = pcrt_facts_of_move(kind);
        if (facts->way == PCRT_WAY_LINK)
          continue; // not between ranks
        if (reduction == PCRT_MAX && facts->needs != PCRT_STATE_PARTIAL &&
            kind != PCRT_ALL_TO_ALL) // there, the direction
          continue;
        int shape = 0;
        for (auto [outer, extent, inner] : shapes) {
          if (extent > 500 * n && !large)
            continue; // once is enough
          pcrt_move_desc desc{"row", kind, group.id, dtype, reduction, outer, extent, inner, 1, 1, "forward", 0, 0, 0};
          if (facts->flags & PCRT_MOVE_SHIFTS) {
            desc.shift = int32_t((shape + (kind == PCRT_PERMUTE)) % n);
            desc.with = shape / 2 % 2; // any group, because the runtime knows only one axis
          }
          if (facts->needs != PCRT_STATE_SPLIT && facts->makes != PCRT_STATE_SPLIT) {
            desc.outer = outer * extent * inner;
            desc.extent = desc.inner = 1;
          }
          if (kind == PCRT_ALL_TO_ALL) {
            desc.middle = 1 + shape % 3;
            desc.extent2 = n * (1 + shape % 2);
          }
          ++shape;
          moves.push_back(desc);
        }
      }
}

/// Checks all moves of one mesh. `arena` is null on a device.
static void checkMesh(const std::vector<int> &mesh, bool large, char *arena) {
  MeshMoves all;
  for (int set = 1; set < 1 << mesh.size(); ++set) {
    std::vector<int> axes;
    for (int axis = 0; axis < int(mesh.size()); ++axis)
      if (set >> axis & 1)
        axes.push_back(axis);
    do
      all.groups.push_back(makeGroup(mesh, axes, int(all.groups.size())));
    while (std::next_permutation(axes.begin(), axes.end()));
  }
  for (const Group &group : all.groups)
    addRows(group, large && group.id == 0, all.moves);
  int64_t size = comm->size();
  // These are larger than a tile and a cache.
  if (large)
    for (int32_t dtype : {PCRT_F32, PCRT_BF16})
      for (int32_t kind : {PCRT_ALL_REDUCE, PCRT_ALL_GATHER, PCRT_REDUCE_SCATTER})
        all.moves.push_back({"large", kind, 0, dtype, PCRT_SUM, 1, size * 50021, 3, 1, 1, "forward", 0, 0, 0});
  mover->prepare(all);
  int number = 0;
  for (const pcrt_move_desc &desc : all.moves)
    checkRow(desc, all.groups[desc.group], ++number % 4 == 2 ? Mover::Way::Threads : Mover::Way::Plain);
  for (size_t first = 0; first + 7 < all.moves.size(); first += 31)
    if (all.moves[first].group == all.moves[first + 6].group)
      checkTogether(&all.moves[first], 7, all.groups[all.moves[first].group]);
  for (const Group &group : all.groups)
    if (arena)
      checks += checkRowMoves(group, arena);
}

static void checkSpecialValues(const Group &group, float *arena) {
  // Minus zero is kept, a maximum keeps the NaN of any member, and infinities are added.
  int n = group.size();
  float *in = arena, *out = arena + 64;
  in[0] = -0.0f;
  in[1] = group.me == n - 1 ? __builtin_nanf("") : float(group.me);
  in[2] = group.me == 0 ? __builtin_nanf("") : float(group.me);
  in[3] = group.me == 0 ? -__builtin_inff() : 1.0f;
  pcrt_move_desc desc{"special", PCRT_ALL_REDUCE, 0, PCRT_F32, PCRT_SUM, 4, 1, 1, 1, 1, "forward", 0, 0, 0};
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
  pcrt_move_desc good{"bad", PCRT_ALL_GATHER, 0, PCRT_F32, PCRT_SUM, 1, group.size(), 4, 1, 1, "forward", 0, 0, 0};
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

/// Runs all checks of one rank.
static pcrt_status runRank(Comm &mine) {
  comm = &mine;
  checks = 0;
  int size = comm->size();
  // Sizes differ between ranks.
  int64_t arenaBytes = (64 << 20) + comm->rank() * 12345;
  char *arena = nullptr;
  std::unique_ptr<Mover> owner;
  if (onDevice) {
    owner = makeDeviceMover(mine, arenaBytes);
  } else {
    require(comm->allocateArena(arenaBytes, &arena));
    if (reinterpret_cast<uintptr_t>(arena) % 64)
      leave(PCRT_VERIFICATION, "arena not aligned");
    for (int64_t i = 0; i < arenaBytes; i += 4093)
      if (arena[i])
        leave(PCRT_VERIFICATION, "arena not zero");
    owner = makeHostMover(mine, arena);
  }
  mover = owner.get();

  for (int64_t n : {0, 1, 13, 100000}) {
    std::vector<char> mine(n, char(comm->rank() + 1)), all(n * size + 1);
    require(comm->allGatherBytes(mine.data(), n, all.data()));
    for (int64_t i = 0; i < n * size; ++i)
      if (all[i] != char(i / n + 1))
        leave(PCRT_VERIFICATION, "allGatherBytes");
    require(comm->barrier());
  }

  bool large = true;
  forAllMeshes(size, [&](const std::vector<int> &mesh) {
    checkMesh(mesh, large, arena);
    large = false;
  });
  if (!onDevice) {
    Group world = makeGroup({size}, {0}, 0);
    checkSpecialValues(world, reinterpret_cast<float *>(arena));
    checkMalformed(world, arena);
    checkRefusedRows(world, arena);
  }
  require(comm->barrier());
  if (comm->rank() == 0)
    printf("%s, %d ranks: %ld checks passed on each rank\n", mover->name().c_str(), size, long(checks));
  return PCRT_OK;
}

/// Prints a Failure that is thrown while a device is opened, like other errors.
static pcrt_status tryRank(Comm &mine) {
  try {
    return runRank(mine);
  } catch (const Failure &failure) {
    fprintf(stderr, "error: rank %d: %s\n", mine.rank(), failure.message.c_str());
    mine.abort(failure.status, failure.message.c_str());
    return failure.status;
  }
}

int main(int argc, char **argv) {
  int ranks = 1;
  for (int i = 1; i < argc; ++i) {
    if (!strncmp(argv[i], "--transport=", 12)) {
      setenv("PCRT_TRANSPORT", argv[i] + 12, 1);
    } else if (!strncmp(argv[i], "--ranks=", 8) && atoi(argv[i] + 8) > 0) {
      ranks = atoi(argv[i] + 8);
    } else if (!strcmp(argv[i], "--device")) {
      onDevice = true;
    } else {
      fprintf(stderr, "usage: comm-conformance [--transport=NAME] [--ranks=N] [--device]\n");
      return PCRT_USAGE;
    }
  }
  std::string error;
  pcrt_status status = runRanks(ranks, onDevice, tryRank, &error);
  if (!error.empty())
    fprintf(stderr, "error: %s\n", error.c_str());
  return status;
}
