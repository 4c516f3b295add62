//===- SampleOrder.cpp - The order in which a run reads its data ----------===//
// The turns of sources are computed once: each is taken from the source with the largest deficit. Everything else is
// computed for each sample.
//===----------------------------------------------------------------------===//
#include "data/SampleOrder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

using namespace pcrt;

/// The finalizer of splitmix64.
static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t pcrt::permute(uint64_t i, uint64_t n, uint64_t key) {
  if (n < 2)
    return i;
  int half = (std::bit_width(n - 1) + 1) / 2;
  uint64_t mask = (uint64_t(1) << half) - 1;
  do {
    uint64_t left = i >> half, right = i & mask;
    for (uint64_t round = 0; round < 4; ++round)
      left = std::exchange(right, left ^ (mix(mix(key + round) ^ right) & mask));
    i = left << half | right;
  } while (i >= n);
  return i;
}

int64_t HeldOut::count(int64_t windows, bool held) const {
  int64_t out = every ? windows / every : 0;
  return held ? out : windows - out;
}

int64_t HeldOut::window(int64_t i, int64_t windows, bool held) const {
  if (!every)
    return i;
  auto drawn = [&](int64_t group) { return int64_t(mix(uint64_t(group)) % uint64_t(every)); };
  if (held)
    return i * every + drawn(i);
  int64_t group = i / (every - 1), rest = i % (every - 1);
  if (group >= windows / every) // after the last whole group nothing is held out
    return windows / every * every + i - windows / every * (every - 1);
  return group * every + rest + (rest >= drawn(group));
}

SampleOrder::SampleOrder(std::vector<Source> all, bool shuffle, uint64_t seed, HeldOut heldOut, bool readsHeldOut)
    : sources(std::move(all)), perPeriod(sources.size()), shuffle(shuffle && !readsHeldOut), readsHeldOut(readsHeldOut),
      seed(seed), heldOut(heldOut) {
  double total = 0;
  for (const Source &source : sources) {
    std::vector<int64_t> &count = counts.emplace_back(1, 0);
    for (int64_t windows : source.windows)
      count.push_back(count.back() + heldOut.count(windows, readsHeldOut));
    total += source.weight;
  }
  // Each turn is given to the source with the largest deficit.
  for (int64_t turn = 0; turn < period; ++turn) {
    auto after = [&](size_t s) { return sources[s].weight / total * double(turn + 1) - double(perPeriod[s]); };
    size_t next = 0;
    for (size_t s = 1; s < sources.size(); ++s)
      if (after(s) > after(next))
        next = s;
    turns.push_back(int(next));
    before.push_back(perPeriod[next]++);
  }
}

SampleOrder::Place SampleOrder::of(int64_t sample) const {
  Place place;
  place.source = turns[sample % period];
  const std::vector<int64_t> &count = counts[place.source];
  int64_t k = sample / period * perPeriod[place.source] + before[sample % period];
  int64_t n = count.back(), epoch = k / n, i = k % n;
  if (shuffle)
    i = int64_t(permute(uint64_t(i), uint64_t(n), mix(mix(seed) + uint64_t(place.source)) + uint64_t(epoch) * 4));
  place.file = int(std::upper_bound(count.begin(), count.end(), i) - count.begin()) - 1;
  place.window = heldOut.window(i - count[place.file], sources[place.source].windows[place.file], readsHeldOut);
  return place;
}
