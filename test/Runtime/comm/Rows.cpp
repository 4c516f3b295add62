//===- Rows.cpp - The required results of an all_to_all of rows -----------===//
// Written from the text of pcrt.h: every entry of the mask is looked up in the buffers of both members.
//===----------------------------------------------------------------------===//
#include "Rows.h"
#include "Mover.h"
#include "Simulation.h"
#include "ThisRank.h"

#include <cstring>
#include <string>
#include <utility>

using namespace pcrt;

namespace {

/// The experts that tokens choose.
enum class Routing : uint8_t { Mixed, First, Last, Few, None };

struct Problem {
  pcrt_move_desc desc;
  int64_t n;
  std::vector<float> mask;

  /// Returns the entries (token, expert) in a member's buffer, in their order.
  std::vector<std::pair<int64_t, int64_t>> rows(int64_t member, bool ofExperts) const {
    std::vector<std::pair<int64_t, int64_t>> found;
    for (int64_t expert = 0; expert < desc.extent2; ++expert)
      for (int64_t token = 0; token < desc.outer * desc.extent * desc.middle; ++token) {
        int64_t x = token / desc.middle % desc.extent;
        bool isOwn = ofExperts ? expert / (desc.extent2 / n) == member : x / (desc.extent / n) == member;
        if (isOwn && mask[size_t(token * desc.extent2 + expert)] != 0)
          found.emplace_back(token, expert);
      }
    return found;
  }
};

} // namespace

static std::vector<float> maskOf(const pcrt_move_desc &d, Routing routing) {
  std::vector<float> mask(size_t(d.outer * d.extent * d.middle * d.extent2));
  for (int64_t token = 0; token < d.outer * d.extent * d.middle; ++token)
    for (int64_t slot = 0; slot < d.shift; ++slot) {
      int64_t expert = (token * 7 + slot * 3 + token / 5) % d.extent2;
      if (routing == Routing::First || routing == Routing::Last)
        expert = routing == Routing::First ? slot % d.extent2 : d.extent2 - 1 - slot % d.extent2;
      bool isThere = routing != Routing::None && (routing != Routing::Few || (token + slot) % 3 == 0);
      if (isThere)
        mask[size_t(token * d.extent2 + expert)] = 0.5f + float(slot);
    }
  return mask;
}

static void check(Problem &problem, const Group &group, char *arena, int64_t behind, uint64_t salt, bool inArena) {
  pcrt_move_desc &d = problem.desc;
  d.codes = int64_t(reinterpret_cast<uintptr_t>(problem.mask.data()));
  const bool back = d.reduction;
  auto mine = problem.rows(group.me, back), wanted = problem.rows(group.me, !back);
  const int64_t n = group.size(), most = d.outer * d.extent * d.middle * d.extent2 * d.inner;
  const int64_t width = d.dtype == PCRT_BF16 ? 2 : 4;
  const Bits unwritten = d.dtype == PCRT_BF16 ? 0x5555 : 0x55555555;
  std::vector<char> plain(size_t((2 * most + 64) * width));
  char *in = inArena ? arena : plain.data(), *out = in + (inArena ? behind : most * width);
  const int64_t tokens = d.outer * d.extent * d.middle;
  const int64_t outRows =
      back ? tokens / n * std::min<int64_t>(d.shift, d.extent2) : tokens * std::min<int64_t>(d.shift, d.extent2 / n);
  for (int64_t i = 0; i < outRows * d.inner + 8; ++i)
    putBits(d.dtype, out, i, unwritten);
  for (int64_t i = 0; i < int64_t(mine.size()) * d.inner; ++i)
    putBits(d.dtype, in, i, element(d.dtype, comm->rank(), i, salt));
  require(comm->move(d, group, in, out));
  auto wrong = [&](const std::string &what) {
    leave(PCRT_VERIFICATION, "rows [" + std::to_string(d.outer) + ", " + std::to_string(d.extent) + ", " +
                                 std::to_string(d.middle) + ", " + std::to_string(d.extent2) + ", " +
                                 std::to_string(d.inner) + "] routed " + std::to_string(d.shift) + " back " +
                                 std::to_string(back) + " group " + group.name + ": " + what);
  };
  for (int64_t member = 0; member < n; ++member) {
    auto theirs = problem.rows(member, back);
    for (size_t row = 0; row < wanted.size(); ++row)
      for (size_t source = 0; source < theirs.size(); ++source)
        for (int64_t i = 0; theirs[source] == wanted[row] && i < d.inner; ++i)
          if (getBits(d.dtype, out, int64_t(row) * d.inner + i) !=
              element(d.dtype, group.ranks[size_t(member)], int64_t(source) * d.inner + i, salt))
            wrong("element " + std::to_string(i) + " of row " + std::to_string(row));
  }
  for (int64_t i = 0; i < 8; ++i)
    if (getBits(d.dtype, out, outRows * d.inner + i) != unwritten)
      wrong("wrote past its result");
}

int64_t checkRowMoves(const Group &group, char *arena) {
  const int64_t n = group.size();
  int64_t checks = 0;
  struct Shape {
    int64_t outer, extent, middle, experts, inner, routed;
  };
  for (Shape shape : {Shape{1, n * 3, 5, n * 2, 3, 2}, Shape{3, n * 2, 1, n, 1, 1}, Shape{2, n, 3, n * 3, 7, 4},
                      Shape{1, n, 1, n * 2, 2, n * 2}, Shape{0, n, 1, n, 3, 1}})
    for (Routing routing : {Routing::Mixed, Routing::First, Routing::Last, Routing::Few, Routing::None})
      for (int32_t back : {0, 1}) {
        Problem problem{{}, n, {}};
        pcrt_move_desc &d = problem.desc;
        d.name = "rows", d.kind = PCRT_ALL_TO_ALL, d.group = group.id, d.phase = "forward";
        d.dtype = checks / 2 % 2 ? PCRT_BF16 : PCRT_F32;
        d.reduction = back;
        d.outer = shape.outer, d.extent = shape.extent, d.middle = shape.middle;
        d.extent2 = shape.experts, d.inner = shape.inner;
        d.shift = int32_t(std::min(shape.routed, shape.experts));
        problem.mask = maskOf(d, routing);
        check(problem, group, arena, 1 << 20, uint64_t(checks) * 131, checks % 3 != 1);
        ++checks;
      }
  return checks;
}

void checkRefusedRows(const Group &group, char *arena) {
  const int64_t n = group.size();
  std::vector<float> mask(size_t(n * n * 2), 1.0f);
  pcrt_move_desc d{};
  d.name = "rows", d.kind = PCRT_ALL_TO_ALL, d.phase = "forward";
  d.outer = d.middle = d.inner = 1, d.extent = n, d.extent2 = 2 * n, d.shift = 1;
  d.codes = int64_t(reinterpret_cast<uintptr_t>(mask.data()));
  auto refused = [&](pcrt_move_desc desc, const char *words) {
    if (comm->move(desc, group, arena, arena + 4096) != PCRT_INTERNAL || comm->error().find(words) == std::string::npos)
      leave(PCRT_VERIFICATION, std::string("not refused: ") + words + " (" + comm->error() + ")");
  };
  pcrt_move_desc bad = d;
  bad.codes = 0;
  refused(bad, "routed tokens need a mask");
  bad = d;
  bad.dtype = PCRT_I32;
  refused(bad, "routed tokens must be f32 or bf16");
}
