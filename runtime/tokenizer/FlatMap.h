//===- FlatMap.h - A hash table of numbers --------------------------------===//
// The inner loops of models look up pairs of numbers: two tokens that may merge, or a node of a trie and a byte.
//===----------------------------------------------------------------------===//
#ifndef PCRT_TOKENIZER_FLATMAP_H
#define PCRT_TOKENIZER_FLATMAP_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pcrt {

/// A map from pairs of numbers, with open addressing. The pair of two `UINT32_MAX` cannot be a key.
template <typename Value> class FlatMap {
public:
  /// Makes room for `count` entries. The map must not get more.
  explicit FlatMap(size_t count = 0) {
    size_t size = 16;
    while (size < 2 * count)
      size *= 2;
    slots.resize(size);
  }

  /// Returns the value of a pair, and adds a new one if there is none.
  Value &operator()(uint32_t first, uint32_t second) {
    Slot &slot = slots[find(keyOf(first, second))];
    slot.key = keyOf(first, second);
    return slot.value;
  }
  /// Returns null if the pair has no value.
  const Value *get(uint32_t first, uint32_t second) const {
    const Slot &slot = slots[find(keyOf(first, second))];
    return slot.key == none ? nullptr : &slot.value;
  }

private:
  static constexpr uint64_t none = UINT64_MAX;
  struct Slot {
    uint64_t key = none;
    Value value = {};
  };
  static uint64_t keyOf(uint32_t first, uint32_t second) { return uint64_t(first) << 32 | second; }
  size_t find(uint64_t key) const {
    uint64_t hash = key * 0x9e3779b97f4a7c15;
    size_t at = (hash ^ hash >> 32) & (slots.size() - 1);
    while (slots[at].key != none && slots[at].key != key)
      at = (at + 1) & (slots.size() - 1);
    return at;
  }

  std::vector<Slot> slots;
};

} // namespace pcrt

#endif // PCRT_TOKENIZER_FLATMAP_H
