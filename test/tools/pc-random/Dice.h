//===- Dice.h - Random choices --------------------------------------------===//
// The generator of pc-random, independent of the standard library's distributions.
//===----------------------------------------------------------------------===//
#ifndef PC_TOOLS_RANDOM_DICE_H
#define PC_TOOLS_RANDOM_DICE_H

#include <initializer_list>
#include <random>
#include <utility>
#include <vector>

/// Random choices that are the same on every machine (no std distributions).
class Dice {
public:
  explicit Dice(uint64_t seed) : engine(seed * 0x9e3779b97f4a7c15ull + 1) {}
  int64_t between(int64_t low, int64_t high) { return low + static_cast<int64_t>(engine() % (high - low + 1)); }
  bool chance(int percent) { return between(1, 100) <= percent; }
  template <typename T> T oneOf(std::initializer_list<T> list) { return list.begin()[between(0, list.size() - 1)]; }
  template <typename T> void shuffle(std::vector<T> &list) {
    for (size_t i = list.size(); i > 1; --i)
      std::swap(list[i - 1], list[between(0, i - 1)]);
  }

private:
  std::mt19937_64 engine;
};

#endif
