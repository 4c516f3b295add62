//===- Measure.h - What the ranks of this machine can do ------------------===//
// Every rank does the same at the same time, as ranks of a run do: a core that works alone is faster than one of many.
// All measurements go round in turns, so that a machine that is busy for a while disturbs each of them a little.
//===----------------------------------------------------------------------===//
#ifndef PC_CALIBRATE_MEASURE_H
#define PC_CALIBRATE_MEASURE_H

#include "Target.h"

namespace pc_calibrate {

/// How long something took.
struct Measurement {
  std::string name;
  double work = 0;      ///< What one call does: flops, bytes through memory, or bytes that a rank sends.
  double seconds = 0;   ///< Of one call, the median of all rounds; of a meeting, the mean.
  double spread = 0;    ///< Between the quartiles, as a share of the median.
  bool isSmall = false; ///< A latency: its spread says little.

  double rate() const { return work / seconds; }
  bool isThere() const { return seconds > 0; }
};

/// What ranks of a group send each other, all groups of its kind at the same time.
struct GroupMoves {
  int size = 0;                          ///< Ranks of a group; 0: there are none.
  std::vector<Measurement> large, small; ///< all_reduce, all_gather, reduce_scatter: by their bytes, and of 4 kB.
  Measurement message;                   ///< There and back between two ranks, 4 kB each.

  /// Bytes that a rank sends in a second, over the latencies, in gathers and scatters.
  double bandwidth() const;
  /// How many times as many in an all_reduce.
  double allReduceSpeed() const { return rate(0) / bandwidth(); }
  /// Seconds of a small all_gather, or all_reduce.
  double gatherSeconds() const { return small[1].seconds; }
  double sumSeconds() const { return small[0].seconds; }

private:
  double rate(size_t kind) const;
};

/// Attention of one length, as kernels of a compiled program do it: `work` is that of all scores.
struct AttentionTimes {
  int64_t keys = 0, headDim = 0;
  bool bf16 = false;
  Measurement forward, backward;
};

struct Measurements {
  DeviceFacts device;
  Sizes sizes;
  std::vector<Measurement> products, bf16Products; ///< Of the shapes of `sizes`.
  Measurement copy,                                ///< Of what no cache holds.
      sum;                                         ///< Of two tensors of a layer, on cores.
  Measurement adding,                              ///< A bf16 product that adds to gradients.
      unaligned,        ///< The second bf16 product with one column less, whose rows are at no multiple of 16 bytes.
      launch,           ///< Of the smallest piece of work.
      toHost, fromHost; ///< Copies that offloading makes.
  GroupMoves node,      ///< The ranks of a node.
      pair,             ///< Two neighbours in it, where it has more.
      across;           ///< One rank of each node, where there are several: each rank is in such a group.
  Measurement meeting;  ///< Of ranks of a node after the first product, on cores: an all_reduce of 4 kB.
  Measurement beside;   ///< A product while a large move of all is under way, start and wait included.
  std::vector<AttentionTimes> attention; ///< The shortest first.
  Measurement update;                    ///< Of the parameters of a layer by the optimizer, on cores.
  Measurement streaming;                 ///< Kernels of layers that go by their bytes.
  int threads = 1;                       ///< Of a rank.
  int nodeRanks = 1, nodes = 1;
};

/// All of them, in one order.
std::vector<Measurement> allOf(const Measurements &results);

/// The one that differed most, latencies apart.
Measurement noisiest(const Measurements &results);

/// Measures on `target` for about `seconds`, and what differs by more than `noise` again, for up to three times as
/// long. All ranks call it, `nodeRanks` of each node with consecutive numbers; the results are rank 0's, which decides.
Measurements measure(Target &target, pcrt::Comm &comm, int nodeRanks, double seconds, double noise);

} // namespace pc_calibrate

#endif // PC_CALIBRATE_MEASURE_H
