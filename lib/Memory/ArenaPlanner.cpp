//===- ArenaPlanner.cpp - Buffers with lifetimes -> offsets in one arena ----------------===//
// The problem is dynamic storage allocation: time intervals with sizes get offsets so that no two overlap in both time
// and space. It is NP-hard. The planner tries best fit in a few orders (by the live bytes at the busiest moment, by
// size). For programs with many buffers it tries a faster best fit in the order of time. maxLiveBytes is a lower bound:
// a plan that reaches it is optimal. checkArena verifies any plan, and shares no code with the search.
//===-----------------------------------------------------------------------------===//
#include "pc/Memory/ArenaPlanner.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/Compiler.h"
#include "llvm/Support/MathExtras.h"
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <tuple>

using namespace pc;
using llvm::ArrayRef;
using llvm::SmallVector;

static int64_t alignedBytes(const ArenaBuffer &buffer) { return llvm::alignTo(buffer.bytes, arenaAlignment); }

/// The positions where live ranges begin or end, and the bytes that are live from each position to the next.
static std::pair<SmallVector<int64_t>, SmallVector<int64_t>> liveProfile(ArrayRef<ArenaBuffer> buffers) {
  std::map<int64_t, int64_t> change;
  for (const ArenaBuffer &buffer : buffers) {
    change[buffer.first] += alignedBytes(buffer);
    change[buffer.last + 1] -= alignedBytes(buffer);
  }
  SmallVector<int64_t> positions, live;
  for (auto [position, bytes] : change) {
    positions.push_back(position);
    live.push_back((live.empty() ? 0 : live.back()) + bytes);
  }
  return {positions, live};
}

int64_t pc::maxLiveBytes(ArrayRef<ArenaBuffer> buffers) {
  return buffers.empty() ? 0 : *llvm::max_element(liveProfile(buffers).second);
}

/// For each buffer, the most live bytes at any position of its live range.
static SmallVector<int64_t> crowds(ArrayRef<ArenaBuffer> buffers) {
  auto [positions, live] = liveProfile(buffers);
  SmallVector<SmallVector<int64_t>> most = {live}; // most[k][i]: over i .. i + 2^k - 1
  for (size_t width = 1; 2 * width <= positions.size(); width *= 2) {
    const SmallVector<int64_t> &half = most.back();
    SmallVector<int64_t> next;
    for (size_t i = 0; i + 2 * width <= positions.size(); ++i)
      next.push_back(std::max(half[i], half[i + width]));
    most.push_back(std::move(next));
  }
  SmallVector<int64_t> result;
  for (const ArenaBuffer &buffer : buffers) {
    size_t begin = llvm::lower_bound(positions, buffer.first) - positions.begin();
    size_t end = llvm::upper_bound(positions, buffer.last) - positions.begin();
    // A range maximum from two overlapping powers of two.
    size_t k = llvm::Log2_64(end - begin);
    result.push_back(std::max(most[k][begin], most[k][end - (size_t(1) << k)]));
  }
  return result;
}

namespace {
/// A buffer with its offset. Positions are relative to the first one.
struct Placed {
  int64_t begin, end;
  int32_t first, last;
};

/// Placed buffers, sorted by offset. Most of them are not live at the same time as a new buffer. Their live ranges are
/// stored contiguously, so that many are compared at once.
class PlacedList {
public:
  /// Inserts into four lists, which are in the order of `begins`.
  void insert(const Placed &placed) {
    auto at = llvm::upper_bound(begins, placed.begin) - begins.begin();
    begins.insert(begins.begin() + at, placed.begin);
    ends.insert(ends.begin() + at, placed.end);
    firsts.insert(firsts.begin() + at, placed.first);
    lasts.insert(lasts.begin() + at, placed.last);
  }

  /// Inserts a sorted list.
  void insert(ArrayRef<Placed> some) {
    size_t old = begins.size(), to = old + some.size();
    begins.resize(to), ends.resize(to), firsts.resize(to), lasts.resize(to);
    while (!some.empty())
      if (--to; old && some.back().begin < begins[old - 1]) {
        --old;
        begins[to] = begins[old], ends[to] = ends[old], firsts[to] = firsts[old], lasts[to] = lasts[old];
      } else {
        const Placed &last = some.back();
        begins[to] = last.begin, ends[to] = last.end, firsts[to] = last.first, lasts[to] = last.last;
        some = some.drop_back();
      }
  }

  /// The start of the smallest gap of at least `bytes` between the buffers that are live in this range, or the end of
  /// the last of them.
  int64_t bestFit(int32_t first, int32_t last, int64_t bytes) {
    constexpr size_t word = sizeof(uint64_t);
    const size_t count = begins.size();
    live.resize(llvm::alignTo(count, word));
    const int32_t *from = firsts.data(), *to = lasts.data();
    uint8_t *isLive = live.data();
    for (size_t i = 0; i < count; ++i)
      // The expression has no branches, so that compilers vectorize the loop.
      isLive[i] = (from[i] <= last) & (to[i] >= first);
    std::fill(isLive + count, isLive + live.size(), 0);
    int64_t top = 0, best = -1, bestGap = INT64_MAX;
    for (size_t at = 0; at < live.size(); at += word) {
      uint64_t some;
      memcpy(&some, &live[at], word);
      for (; some; some &= some - 1) {
        size_t i = at + llvm::countr_zero(some) / 8;
        int64_t gap = begins[i] - top;
        if (LLVM_UNLIKELY(gap >= bytes) && gap < bestGap) {
          best = top;
          bestGap = gap;
        }
        top = std::max(top, ends[i]);
      }
    }
    return best >= 0 ? best : top;
  }

private:
  std::vector<int64_t> begins, ends;
  std::vector<int32_t> firsts, lasts;
  std::vector<uint8_t> live; ///< 1: live at the same time as the new buffer
};

/// The buffers placed so far. In a long program most live ranges are short. So time is divided into windows, each of
/// which overlaps the next by half its length. A short live range is within one window, and has to be compared only
/// with the buffers of that window.
class PlacedBuffers {
public:
  /// Windows of time are about as long as most live ranges, so that a buffer is in few of them.
  explicit PlacedBuffers(ArrayRef<ArenaBuffer> buffers) {
    start = INT64_MAX;
    SmallVector<int64_t> lengths;
    for (const ArenaBuffer &buffer : buffers) {
      start = std::min(start, buffer.first);
      end = std::max(end, buffer.last + 1);
      lengths.push_back(buffer.last + 1 - buffer.first);
    }
    if (buffers.empty())
      return;
    auto most = lengths.begin() + static_cast<int64_t>(lengths.size() * 9 / 10); // 90 % of live ranges are not longer
    std::nth_element(lengths.begin(), most, lengths.end());
    half = std::max(*most, (end - start) / 256 + 1);
    if (end - start > 8 * half)
      windows.resize((end - start) / half + 1);
  }

  /// Returns true if positions fit the type that `Placed` uses.
  bool isCountable() const { return end - start <= INT32_MAX; }

  /// Places a buffer in the smallest gap that is free; returns its offset.
  int64_t place(const ArenaBuffer &buffer) {
    int64_t bytes = alignedBytes(buffer);
    auto first = static_cast<int32_t>(buffer.first - start), last = static_cast<int32_t>(buffer.last - start);
    int64_t offset = near(first, last).bestFit(first, last, bytes);
    add({offset, offset + bytes, first, last});
    return offset;
  }

private:
  /// Adds a buffer to every window of time in which it lives. It is added to `all` only when a search needs all
  /// buffers.
  void add(const Placed &placed) {
    if (windows.empty())
      return all.insert(placed);
    recent.push_back(placed);
    size_t last = placed.last / half, first = placed.first / half;
    for (size_t w = first ? first - 1 : 0; w <= last; ++w)
      windows[w].insert(placed);
  }

  /// A list that contains all placed buffers that are live between two positions, and possibly others.
  PlacedList &near(int32_t first, int32_t last) {
    size_t w = first / std::max<int64_t>(half, 1);
    if (!windows.empty() && last < static_cast<int64_t>(w + 2) * half)
      return windows[w];
    llvm::sort(recent, [](const Placed &a, const Placed &b) {
      return std::tie(a.begin, a.end, a.first, a.last) < std::tie(b.begin, b.end, b.first, b.last);
    });
    all.insert(recent);
    recent.clear();
    return all;
  }

  int64_t start = 0, end = 0, half = 0; ///< window w is from w half to (w + 2) half
  PlacedList all;
  SmallVector<Placed> recent;      ///< not yet in `all`; used only with windows
  std::vector<PlacedList> windows; ///< empty if most live ranges are long
};
} // namespace

/// Places buffers in `order`, each in the smallest free gap. Returns std::nullopt if the arena would exceed `most`.
static std::optional<ArenaPlan> placeInOrder(ArrayRef<ArenaBuffer> buffers, ArrayRef<unsigned> order, int64_t most) {
  ArenaPlan plan;
  plan.offsets.resize(buffers.size());
  PlacedBuffers placed(buffers);
  if (!placed.isCountable())
    return std::nullopt;
  for (unsigned i : order) {
    plan.offsets[i] = placed.place(buffers[i]);
    plan.bytes = std::max(plan.bytes, plan.offsets[i] + alignedBytes(buffers[i]));
    if (plan.bytes > most)
      return std::nullopt;
  }
  return plan;
}

/// Places buffers in the order in which their live ranges begin, each in the smallest gap that is free at that
/// position. This takes O(n log n), while placeInOrder takes O(n^2). The result is close to the lower bound for long
/// programs of equal parts (microbatches).
static ArenaPlan placeInTime(ArrayRef<ArenaBuffer> buffers) {
  ArenaPlan plan;
  plan.offsets.resize(buffers.size());
  std::vector<std::tuple<int64_t, bool, int64_t, unsigned>>
      events; // position, begins, -bytes, buffer; at a position, ends come first
  // Sorting by -bytes places larger buffers first among those that begin at the same position.
  for (auto [i, buffer] : llvm::enumerate(buffers)) {
    events.push_back({buffer.first, true, -buffer.bytes, i});
    events.push_back({buffer.last + 1, false, 0, i});
  }
  llvm::sort(events);
  std::map<int64_t, int64_t> gaps;                  // begin -> end
  std::set<std::pair<int64_t, int64_t>> gapsBySize; // bytes, begin
  auto add = [&](int64_t begin, int64_t end) {
    if (begin < end) {
      gaps[begin] = end;
      gapsBySize.insert({end - begin, begin});
    }
  };
  auto remove = [&](std::map<int64_t, int64_t>::iterator gap) {
    gapsBySize.erase({gap->second - gap->first, gap->first});
    gaps.erase(gap);
  };
  for (auto [position, begins, order, i] : events) {
    int64_t bytes = alignedBytes(buffers[i]);
    if (!begins) { // a freed range is merged with adjacent gaps
      int64_t begin = plan.offsets[i], end = begin + bytes;
      auto next = gaps.lower_bound(begin);
      if (next != gaps.begin() && std::prev(next)->second == begin) {
        begin = std::prev(next)->first;
        remove(std::prev(next));
      }
      if (next = gaps.lower_bound(end); next != gaps.end() && next->first == end) {
        end = next->second;
        remove(next);
      }
      add(begin, end);
      continue;
    }
    // Best fit: the smallest gap that is large enough, and of equal ones the lowest.
    auto fit = gapsBySize.lower_bound({bytes, 0});
    int64_t begin = plan.bytes, end = plan.bytes;
    if (fit != gapsBySize.end()) {
      begin = fit->second;
      end = begin + fit->first;
      remove(gaps.find(begin));
    } else if (!gaps.empty() && gaps.rbegin()->second == plan.bytes) { // extend the gap at the end of the arena
      begin = gaps.rbegin()->first;
      remove(std::prev(gaps.end()));
    }
    plan.offsets[i] = begin;
    plan.bytes = std::max(plan.bytes, begin + bytes);
    add(begin + bytes, end);
  }
  return plan;
}

/// The first attempt is kept unless a later one is smaller. An attempt that reaches the lower bound ends the search.
ArenaPlan pc::planArena(ArrayRef<ArenaBuffer> buffers) {
  int64_t bound = maxLiveBytes(buffers);
  // With thousands of buffers, the slow attempts are made only if they can save more than half a percent.
  bool large = buffers.size() > 8192;
  ArenaPlan inTime = placeInTime(buffers);
  if (large && static_cast<double>(inTime.bytes) <= 1.005 * static_cast<double>(bound))
    return inTime;
  SmallVector<int64_t> crowd = crowds(buffers);
  auto length = [&](unsigned i) { return buffers[i].last - buffers[i].first; };
  SmallVector<unsigned> order = llvm::to_vector(llvm::seq<unsigned>(0, buffers.size()));
  std::optional<ArenaPlan> best;
  bool isTried = false;
  auto attempt = [&](auto key) {
    if (isTried && ((best && best->bytes == bound) || large))
      return;
    isTried = true;
    llvm::sort(order, [&](unsigned a, unsigned b) { return std::tuple(key(a), a) < std::tuple(key(b), b); });
    // An attempt ends as soon as it is no better than the best one so far.
    int64_t most = best ? best->bytes - 1 : inTime.bytes;
    if (std::optional<ArenaPlan> plan = placeInOrder(buffers, order, most))
      best = std::move(plan);
  };
  // Buffers that are live at the memory peak go first: they stack without gaps up to the bound. The others fit into
  // the gaps before and after.
  attempt([&](unsigned i) { return std::tuple(-crowd[i], -buffers[i].bytes, -length(i)); });
  attempt([&](unsigned i) { return std::tuple(-crowd[i], -length(i), -buffers[i].bytes); });
  attempt([&](unsigned i) { return std::tuple(-buffers[i].bytes, -length(i)); });
  return best ? *best : inTime;
}

/// Neighbours in the list of live buffers must not overlap, so only neighbours of a new buffer are compared.
std::string pc::checkArena(ArrayRef<ArenaBuffer> buffers, const ArenaPlan &plan) {
  if (plan.offsets.size() != buffers.size())
    return "not every buffer has an offset";
  // Sweeps over positions and keeps the live buffers by offset.
  SmallVector<std::tuple<int64_t, bool, unsigned>> events; // (position, begins, buffer): ends come first
  for (auto [i, buffer] : llvm::enumerate(buffers)) {
    if (plan.offsets[i] < 0 || plan.offsets[i] % arenaAlignment || plan.offsets[i] + buffer.bytes > plan.bytes)
      return "buffer " + std::to_string(i) + " is outside the arena";
    events.push_back({buffer.first, true, i});
    events.push_back({buffer.last + 1, false, i});
  }
  llvm::sort(events);
  std::map<int64_t, unsigned> live;
  for (auto [position, begins, i] : events) {
    if (!buffers[i].bytes)
      continue;
    if (!begins) {
      live.erase(plan.offsets[i]);
      continue;
    }
    auto [it, inserted] = live.insert({plan.offsets[i], i});
    auto overlaps = [&](auto a, auto b) { return a->first + buffers[a->second].bytes > b->first; };
    if (!inserted || (it != live.begin() && overlaps(std::prev(it), it)) ||
        (std::next(it) != live.end() && overlaps(it, std::next(it))))
      return "buffer " + std::to_string(i) + " overlaps another at position " + std::to_string(position);
  }
  return {};
}
