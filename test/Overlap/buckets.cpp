//===- buckets.cpp - Checks that schedules of random blocks are legal -----===//
// usage: pc-buckets-test
// Checks the guarantees of Problem.h on schedules of random moves.
//===----------------------------------------------------------------------===//
#include "../../lib/Overlap/Problem.h"
#include "../Checks.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <vector>

using namespace pc;

static std::mt19937_64 random64(1);
static int64_t draw(int64_t low, int64_t high) { return low + int64_t(random64() % uint64_t(high - low + 1)); }

/// Parameters of `layers` layers. The first and the last use of each are in its layer.
static void addUnits(std::vector<MoveItem> &items, int64_t layers) {
  for (int64_t layer = 0; layer < layers; ++layer)
    for (int64_t i = draw(1, 4); i > 0; --i) {
      MoveItem item;
      item.group = 0;
      item.kind = 7;
      item.bytes = draw(1, 100);
      item.needed = 10 * layer + draw(0, 4);
      item.last = item.needed + draw(0, 9 - item.needed % 10);
      item.place = item.needed;
      item.unit = layer;
      items.push_back(item);
    }
}

static void addOthers(std::vector<MoveItem> &items, int64_t length) {
  for (int64_t i = draw(0, 20); i > 0; --i) {
    MoveItem item;
    item.group = draw(0, 2);
    item.kind = draw(0, 1);
    item.bytes = draw(1, 100);
    item.ready = draw(-1, length - 2);
    item.mayWait = draw(0, 1);
    item.inPlace = item.kind == 0;
    item.needed = item.last = item.mayWait && draw(0, 1) ? length : draw(item.ready + 1, length);
    item.place = draw(item.ready, item.needed);
    items.push_back(item);
  }
}

static void check(const std::vector<MoveItem> &items, const ScheduleLimits &limits, bool unitsOnly) {
  auto buckets = scheduleMoves(items, limits);
  std::vector<int> seen(items.size());
  std::map<int64_t, std::pair<int64_t, int64_t>> before; // by group: start and wait of the bucket before
  for (const MoveBucket &bucket : buckets) {
    const MoveItem &first = items[bucket.items[0]];
    int64_t bytes = 0;
    require(bucket.start < bucket.wait, "a wait comes after its start");
    for (unsigned i : bucket.items) {
      const MoveItem &item = items[i];
      ++seen[i];
      bytes += item.bytes;
      require(bucket.start >= item.ready && bucket.wait <= item.needed, "moves are ready at the start, and waited for");
      require(item.group == first.group && item.kind == first.kind, "a bucket has one group and one kind");
      require(bucket.items.size() == 1 || item.mayWait || item.unit >= 0,
              "only moves that may wait and units share a bucket");
    }
    require(bucket.items.size() == 1 || bytes <= limits.bucketBytes, "a bucket is no larger than allowed");
    require(static_cast<int64_t>(bucket.items.size()) <= limits.mostMoves, "nor has it more moves");
    auto [it, isFirst] = before.try_emplace(first.group, bucket.start, bucket.wait);
    require(isFirst || (it->second.first <= bucket.start && it->second.second <= bucket.wait),
            "starts and waits of a group have one order");
    it->second = {bucket.start, bucket.wait};
  }
  require(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }), "every move is in one bucket");
  if (!unitsOnly)
    return;
  // A unit is in memory from the first start of its moves to their last use.
  std::map<int64_t, std::pair<int64_t, int64_t>> lives;
  for (const MoveBucket &bucket : buckets)
    for (unsigned i : bucket.items) {
      auto &life = lives.try_emplace(items[i].unit, bucket.start, items[i].last).first->second;
      life = {std::min(life.first, bucket.start), std::max(life.second, items[i].last)};
    }
  for (auto &[unit, life] : lives) {
    int64_t there = 0, bytes = 0;
    std::set<int64_t> units;
    for (auto &[other, otherLife] : lives) // counts the units just after the op at which this one starts
      if (otherLife.first <= life.first && life.first < otherLife.second) {
        ++there;
        units.insert(other);
      }
    for (const MoveItem &item : items)
      bytes += units.count(item.unit) ? item.bytes : 0;
    require(there <= limits.depth + 1, "no more units are there than allowed");
    require(there == 1 || !limits.aheadBytes || bytes <= limits.aheadBytes, "nor more bytes");
  }
}

int main() {
  for (int round = 0; round < 20000; ++round) {
    ScheduleLimits limits = {};
    limits.bucketBytes = draw(0, 300);
    limits.mostMoves = draw(1, 5);
    limits.depth = draw(0, 3);
    limits.aheadBytes = draw(0, 1) * draw(1, 500);
    std::vector<MoveItem> items;
    addUnits(items, draw(1, 8));
    check(items, limits, true);
    addOthers(items, 80);
    check(items, limits, false);
  }
  printf("20000 random blocks\n");
  return 0;
}
