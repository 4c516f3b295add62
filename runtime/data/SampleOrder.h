//===- SampleOrder.h - The order in which a run reads its data ------------===//
// Sample g, a row of a batch, is a window of T + 1 tokens; windows of a file lie T tokens apart. The window is a
// function of only g: there is no state, it is the same under every plan, and a run that continues a checkpoint only
// needs the number of samples read.
//   g -> source and its number k there     turns of a period, by weight
//     -> epoch k / n, i = k % n            n is the number of the source's windows
//     -> permuted i, if shuffled           keyed by seed, source and epoch
//     -> file and window in it             except windows that are held out
//===----------------------------------------------------------------------===//
#ifndef PCRT_DATA_SAMPLEORDER_H
#define PCRT_DATA_SAMPLEORDER_H

#include <cstdint>
#include <vector>

namespace pcrt {

/// Permutes [0, n); there is a permutation for every key. It is a Feistel network of four rounds over the least even
/// power of two, repeated until the result is in range (cycle walking; Black and Rogaway, CT-RSA 2002).
uint64_t permute(uint64_t i, uint64_t n, uint64_t key);

/// Holds out one of every m neighbouring windows of a file, drawn by their place.
struct HeldOut {
  int64_t every = 0; ///< m; 0: none.

  /// Returns how many windows of a file with `windows` windows are held out, or if `heldOut` is false, how many are
  /// not.
  int64_t count(int64_t windows, bool heldOut) const;
  /// Returns the `i`-th of those windows.
  int64_t window(int64_t i, int64_t windows, bool heldOut) const;
};

/// The order of all samples of a run. It does not change after construction, so any thread may use it.
class SampleOrder {
public:
  /// Files that are read as one. The share of this source in the samples is its weight, divided by the sum of all
  /// weights.
  struct Source {
    std::vector<int64_t> windows; ///< By file.
    double weight = 1;
  };
  /// The window of a sample.
  struct Place {
    int source = 0, file = 0; ///< The file's number in its source.
    int64_t window = 0;
  };
  /// In every period of this many samples, the sources' shares are exact up to rounding.
  static constexpr int64_t period = 1000;

  SampleOrder() = default;
  /// Every source must have a window that is read, and a weight above 0. If `readsHeldOut` is true, the windows that
  /// are held out are read, in the order of the file; otherwise the other windows are read.
  SampleOrder(std::vector<Source> sources, bool shuffle, uint64_t seed, HeldOut heldOut, bool readsHeldOut);

  Place of(int64_t sample) const;
  /// The number of windows of a source that are read in an epoch.
  int64_t windows(int source) const { return counts[source].back(); }

private:
  std::vector<Source> sources;
  std::vector<std::vector<int64_t>> counts; ///< For each source, the windows in its first 0, 1, ... files.
  std::vector<int> turns;                   ///< The source of each sample of a period.
  std::vector<int64_t> before;              ///< The number of earlier samples of that source in the period.
  std::vector<int64_t> perPeriod;           ///< By source.
  bool shuffle = false, readsHeldOut = false;
  uint64_t seed = 0;
  HeldOut heldOut;
};

} // namespace pcrt

#endif // PCRT_DATA_SAMPLEORDER_H
