//===- Buckets.cpp - Decides when moves start, and which start together ---------------===//
// Implements Problem.h. Moves that may wait fill buckets by group and kind. Gathers of units start `depth` units ahead.
// The other moves start when they are ready. A last pass makes the waits of each group follow the order of the starts.
// The result depends only on the input.
//===-----------------------------------------------------------------------------===//
#include "Problem.h"

#include "llvm/ADT/STLExtras.h"
#include <map>

using namespace llvm;
using namespace pc;

namespace {

/// Solves one problem. Construct it, then call run() once. Each kind of move adds its buckets to `buckets`; run() sorts
/// them at the end.
class Scheduler {
public:
  Scheduler(ArrayRef<MoveItem> items, const ScheduleLimits &limits) : items(items), limits(limits) {}

  /// Each item that waits for nothing and belongs to no unit is a separate bucket.
  SmallVector<MoveBucket> run() {
    fillBuckets();
    for (int64_t line : {0, 1})
      gatherAhead(line);
    for (auto [i, item] : llvm::enumerate(items))
      if (!item.mayWait && item.unit < 0)
        buckets.push_back({{static_cast<unsigned>(i)}, item.ready, item.needed});
    auto key = [&](const MoveBucket &bucket) {
      unsigned first = bucket.items[0];
      return std::tuple(bucket.start, bucket.wait, items[first].place, first);
    };
    llvm::sort(buckets, [&](const MoveBucket &a, const MoveBucket &b) { return key(a) < key(b); });
    // A communicator finishes its moves in the order in which they started, so no bucket is waited for later than the
    // next one of its group.
    std::map<int64_t, int64_t> next;
    for (MoveBucket &bucket : llvm::reverse(buckets)) {
      auto [it, isLast] = next.try_emplace(items[bucket.items[0]].group, bucket.wait);
      it->second = bucket.wait = std::min(bucket.wait, it->second);
    }
    return buckets;
  }

private:
  /// Returns the items for which `include` holds, sorted by `key`.
  template <typename Include, typename Key> SmallVector<unsigned> sorted(Include include, Key key) {
    SmallVector<unsigned> order;
    for (unsigned i = 0; i < items.size(); ++i)
      if (include(items[i]))
        order.push_back(i);
    llvm::sort(order,
               [&](unsigned a, unsigned b) { return std::pair(key(items[a]), a) < std::pair(key(items[b]), b); });
    return order;
  }

  /// Buckets of moves that may wait. A bucket closes when it is full, or when the next item is ready only after a value
  /// of the bucket is needed.
  void fillBuckets() {
    struct Open {
      MoveBucket bucket;
      int64_t bytes = 0;
    };
    std::map<std::pair<int64_t, int64_t>, Open> open; // by group and kind
    std::map<std::pair<int64_t, int64_t>, SmallVector<size_t>> closed;
    auto close = [&](Open &o) {
      if (o.bucket.items.empty())
        return;
      const MoveItem &first = items[o.bucket.items[0]];
      SmallVector<size_t> &earlier = closed[{first.group, first.kind}];
      // Inputs are held until the wait. Waiting for the bucket before the last one limits how many are held at once.
      if (!first.inPlace && earlier.size() >= 2) {
        MoveBucket &old = buckets[earlier[earlier.size() - 2]];
        if (old.start < o.bucket.start)
          old.wait = std::min(old.wait, o.bucket.start);
      }
      earlier.push_back(buckets.size());
      buckets.push_back(o.bucket);
      o = {};
    };
    for (unsigned i : sorted([](const MoveItem &item) { return item.mayWait; },
                             [](const MoveItem &item) { return std::tuple(item.ready, item.needed, item.place); })) {
      const MoveItem &item = items[i];
      // Items of a bucket have the same group and kind, so that one start can run them.
      Open &o = open[{item.group, item.kind}];
      if (!o.bucket.items.empty() &&
          (o.bytes + item.bytes > limits.bucketBytes ||
           static_cast<int64_t>(o.bucket.items.size()) >= limits.mostMoves || item.ready >= o.bucket.wait))
        close(o);
      if (o.bucket.items.empty())
        o.bucket.wait = item.needed;
      o.bucket.items.push_back(i);
      o.bytes += item.bytes;
      // The bucket starts when its last input is ready, and waits before its first result is needed.
      o.bucket.start = std::max(o.bucket.start, item.ready);
      o.bucket.wait = std::min(o.bucket.wait, item.needed);
    }
    for (auto &[key, o] : open)
      close(o);
  }

  /// Consecutive items of one unit, in the order in which items are needed.
  struct Unit {
    SmallVector<unsigned> items;
    int64_t bytes = 0, needed = 0, last = 0;
  };

  /// Starts gathers of a unit (a layer) as many units ahead as the limits of number and bytes allow. Does the same for
  /// carries.
  void gatherAhead(int64_t line) {
    SmallVector<Unit> units;
    for (unsigned i : sorted([&](const MoveItem &item) { return !item.mayWait && item.unit >= 0 && item.line == line; },
                             [](const MoveItem &item) { return std::tuple(item.needed, item.place); })) {
      if (units.empty() || items[units.back().items[0]].unit != items[i].unit)
        units.push_back({{}, 0, items[i].needed, 0});
      Unit &unit = units.back();
      unit.items.push_back(i);
      unit.bytes += items[i].bytes;
      unit.last = std::max(unit.last, items[i].last);
    }
    for (size_t k = 0; k < units.size(); ++k) {
      // The units from `first` to this one are in memory together, within the limits of number and bytes.
      size_t first = k;
      int64_t bytes = units[k].bytes;
      while (first > 0 && k - first < static_cast<size_t>(limits.depth) &&
             (!limits.aheadBytes || bytes + units[first - 1].bytes <= limits.aheadBytes))
        bytes += units[--first].bytes;
      int64_t freed = -1;
      for (size_t before = 0; before < first; ++before)
        // Waiting for an earlier unit saves no memory if it is still read after this one is needed.
        if (units[before].last < units[k].needed)
          freed = std::max(freed, units[before].last);
      split(units[k], freed);
    }
  }

  /// Makes buckets of a unit's items by group and kind, within the limits. None starts before op `freed` is done.
  void split(const Unit &unit, int64_t freed) {
    std::map<std::pair<int64_t, int64_t>, std::pair<unsigned, int64_t>> open; // the bucket and its bytes
    for (unsigned i : unit.items) {
      const MoveItem &item = items[i];
      // If `freed` is not before the item is needed, the item starts right before that.
      int64_t start = std::max(item.ready, std::min(freed, item.needed - 1));
      auto it = open.find({item.group, item.kind});
      bool fits = it != open.end() && it->second.second + item.bytes <= limits.bucketBytes &&
                  static_cast<int64_t>(buckets[it->second.first].items.size()) < limits.mostMoves &&
                  start < buckets[it->second.first].wait;
      if (!fits) {
        open[{item.group, item.kind}] = {static_cast<unsigned>(buckets.size()), item.bytes};
        buckets.push_back({{i}, start, item.needed});
        continue;
      }
      MoveBucket &bucket = buckets[it->second.first];
      bucket.items.push_back(i);
      it->second.second += item.bytes;
      bucket.start = std::max(bucket.start, start);
      bucket.wait = std::min(bucket.wait, item.needed);
    }
  }

  ArrayRef<MoveItem> items;
  const ScheduleLimits &limits;
  SmallVector<MoveBucket> buckets;
};

} // namespace

SmallVector<MoveBucket> pc::scheduleMoves(ArrayRef<MoveItem> items, const ScheduleLimits &limits) {
  return Scheduler(items, limits).run();
}
