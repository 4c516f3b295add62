//===- SampleOrder.h - Which windows of the data a run reads --------------===//
// Sample g, a row of a batch, is a window of T + 1 tokens; windows of a file lie T tokens apart. Which one it is is a
// function of g alone: no state, the same under every plan, and a run that goes on from a checkpoint needs the number
// of samples read.
//
//   g -> source and its number k there     turns of a period, by weight
//     -> epoch k / n, i = k % n            n windows are the source's
//     -> permuted i, where shuffled        keyed by seed, source and epoch
//     -> file and window in it             but for those held out
//===----------------------------------------------------------------------===//
#ifndef PCRT_DATA_SAMPLEORDER_H
#define PCRT_DATA_SAMPLEORDER_H

#include <cstdint>
#include <vector>

namespace pcrt {

/// A one-to-one map of [0, n) to itself, one for every key: a Feistel network of four rounds over the least even power
/// of two, repeated until it is in range.
uint64_t permute(uint64_t i, uint64_t n, uint64_t key);

/// Every m-th window of a file is held out: one of each m that lie together, drawn by their place.
struct HeldOut {
  int64_t every = 0; ///< m; 0: none.

  /// How many windows of a file with `windows` of them are held out, or stay.
  int64_t count(int64_t windows, bool heldOut) const;
  /// Window number `i` of those.
  int64_t window(int64_t i, int64_t windows, bool heldOut) const;
};

class SampleOrder {
public:
  /// Files that are read as one, so often as their weight says beside others'.
  struct Source {
    std::vector<int64_t> windows; ///< By file.
    double weight = 1;
  };
  struct Place {
    int source = 0, file = 0; ///< The file's number in its source.
    int64_t window = 0;
  };
  /// Counts are exact in every period of this many samples.
  static constexpr int64_t period = 1000;

  SampleOrder() = default;
  /// Every source has a window that is read, and a weight above 0. `readsHeldOut`: those that are held out, in the
  /// order of the file; else the others.
  SampleOrder(std::vector<Source> sources, bool shuffle, uint64_t seed, HeldOut heldOut, bool readsHeldOut);

  Place of(int64_t sample) const;
  /// Windows of a source that are read in an epoch.
  int64_t windows(int source) const { return counts[source].back(); }

private:
  std::vector<Source> sources;
  std::vector<std::vector<int64_t>> counts; ///< By source: windows read in its first files, from 0 to all of them.
  std::vector<int> turns;                   ///< The source of each sample of a period,
  std::vector<int64_t> before;              ///< and how many of the same source stand before it.
  std::vector<int64_t> perPeriod;           ///< By source.
  bool shuffle = false, readsHeldOut = false;
  uint64_t seed = 0;
  HeldOut heldOut;
};

} // namespace pcrt

#endif // PCRT_DATA_SAMPLEORDER_H
