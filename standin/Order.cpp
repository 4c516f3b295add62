//===- Order.cpp - Happens-before between pieces of work ------------------===//
// The history is a map of segments of bytes with equal accesses, which are split as accesses need. Chains are reused
// greedily, so that their number is about that of streams.
//===----------------------------------------------------------------------===//
#include "standin/Order.h"
#include "standin/Memory.h"
#include "standin/Options.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

using namespace pc::standin;

namespace {

/// The item after an access.
struct Tag {
  uint32_t chain = 0, tick = 0; ///< Tick 0: no item.
  uint32_t name = 0;

  bool isBefore(const OrderClock &clock) const {
    return tick == 0 || (clock.chain == chain && clock.tick == tick) ||
           (chain < clock.ticks.size() && clock.ticks[chain] >= tick);
  }
};

/// Bytes with one history; the map's key is the begin.
struct Segment {
  uintptr_t end;
  Tag writer;
  std::vector<Tag> readers; ///< Since the write, the latest ones.
};

/// The last accesses to all memory, and the names of the items that made them.
struct History {
  std::map<uintptr_t, Segment> segments;
  std::vector<uint32_t> lengths; ///< The lengths of the chains.
  std::vector<std::string> names;
  std::unordered_map<std::string, uint32_t> nameIds;
  std::set<std::string> told;

  uint32_t nameId(const std::string &name) {
    auto [it, isNew] = nameIds.try_emplace(name, names.size());
    if (isNew)
      names.push_back(name);
    return it->second;
  }

  /// Splits the segment that contains `at`, so that one begins there.
  void splitAt(uintptr_t at) {
    auto it = segments.lower_bound(at);
    if (it == segments.begin())
      return;
    --it;
    if (it->first >= at || it->second.end <= at)
      return;
    Segment upper = it->second;
    it->second.end = at;
    segments.emplace(at, std::move(upper));
  }
};

} // namespace

static History &history() {
  static auto *history = new History;
  return *history;
}

void OrderClock::join(const OrderClock &other) {
  if (ticks.size() < other.ticks.size())
    ticks.resize(other.ticks.size());
  for (size_t i = 0; i < other.ticks.size(); ++i)
    ticks[i] = std::max(ticks[i], other.ticks[i]);
}

void pc::standin::placeInChain(OrderClock &clock) {
  auto &lengths = history().lengths;
  // Only an item that comes after all of a chain can extend it. The longest such chain is usually the item's own
  // stream.
  size_t chain = lengths.size();
  for (size_t i = std::min(clock.ticks.size(), lengths.size()); i-- > 0;)
    if (clock.ticks[i] == lengths[i] && (chain == lengths.size() || lengths[i] > lengths[chain]))
      chain = i;
  if (chain == lengths.size())
    lengths.push_back(0);
  if (clock.ticks.size() <= chain)
    clock.ticks.resize(chain + 1);
  clock.chain = static_cast<uint32_t>(chain);
  clock.tick = clock.ticks[chain] = ++lengths[chain];
}

static void tell(const std::string &first, const char *firstDoes, const std::string &second, const char *secondDoes,
                 uintptr_t begin, uintptr_t end) {
  if (!history().told.insert(first + '\n' + second + '\n' + firstDoes + secondDoes).second)
    return;
  report("order: nothing orders '" + first + "', which " + firstDoes + ", and '" + second + "', which " + secondDoes +
         ", " + describeMemory(reinterpret_cast<const void *>(begin), static_cast<int64_t>(end - begin)));
}

void pc::standin::checkAccess(const OrderClock &clock, const std::string &name, const pc_standin_access &access) {
  if (access.bytes <= 0)
    return;
  History &h = history();
  uintptr_t begin = reinterpret_cast<uintptr_t>(access.begin), end = begin + access.bytes;
  Tag self{clock.chain, clock.tick, h.nameId(name)};
  h.splitAt(begin);
  h.splitAt(end);
  const char *does = access.write ? "writes" : "reads";
  auto it = h.segments.lower_bound(begin);
  uintptr_t covered = begin;
  auto fill = [&](uintptr_t upTo) { // bytes without history
    if (covered >= upTo)
      return;
    Segment fresh{upTo, {}, {}};
    (access.write ? fresh.writer : fresh.readers.emplace_back()) = self;
    h.segments.emplace_hint(it, covered, std::move(fresh));
  };
  while (it != h.segments.end() && it->first < end) {
    Segment &segment = it->second;
    if (!segment.writer.isBefore(clock))
      tell(h.names[segment.writer.name], "writes", name, does, it->first, segment.end);
    if (access.write) {
      for (const Tag &reader : segment.readers)
        if (!reader.isBefore(clock))
          tell(h.names[reader.name], "reads", name, does, it->first, segment.end);
      it = h.segments.erase(it);
      continue;
    }
    fill(it->first);
    // Readers that precede this one need not be kept.
    std::erase_if(segment.readers, [&](const Tag &reader) { return reader.isBefore(clock); });
    segment.readers.push_back(self);
    covered = segment.end;
    ++it;
  }
  fill(end);
}

void pc::standin::forgetAccesses(const void *memory, int64_t bytes) {
  History &h = history();
  uintptr_t begin = reinterpret_cast<uintptr_t>(memory), end = begin + bytes;
  h.splitAt(begin);
  h.splitAt(end);
  h.segments.erase(h.segments.lower_bound(begin), h.segments.lower_bound(end));
}

void pc::standin::resetOrder() {
  History &h = history();
  h.segments.clear();
  h.told.clear();
}
