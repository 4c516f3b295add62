//===- Measure.h - Measurements of the ranks of this machine --------------===//
// Every rank does the same at the same time, like the ranks of a run, because a single busy core is faster than one of
// many. All measurements take turns, so that a short disturbance affects each of them a little.
//===----------------------------------------------------------------------===//
#ifndef PC_CALIBRATE_MEASURE_H
#define PC_CALIBRATE_MEASURE_H

#include "Target.h"

namespace pc_calibrate {

/// The time of one kind of call.
struct Measurement {
  std::string name;
  double work = 0;      ///< The work of one call: flops, bytes through memory, or bytes that a rank sends.
  double seconds = 0;   ///< The median seconds of a call over all rounds; for `meeting`, the mean.
  double spread = 0;    ///< The interquartile range, divided by the median.
  bool isSmall = false; ///< It is a latency, whose spread is not significant.

  double rate() const { return work / seconds; }
  bool isThere() const { return seconds > 0; }
};

/// The moves between ranks of a group, with all groups of its kind at the same time.
struct GroupMoves {
  int size = 0;                          ///< Ranks of a group; 0: there are no groups.
  std::vector<Measurement> large, small; ///< all_reduce, all_gather, reduce_scatter: large ones, and of 4 kB.
  Measurement message;                   ///< 4 kB from one rank to another, and back.
  /// The bytes per second that a rank sends in gathers and scatters, without the latencies.
  double bandwidth() const;
  /// The rate of an all_reduce, divided by that bandwidth.
  double allReduceSpeed() const { return rate(0) / bandwidth(); }
  /// Seconds of a small all_gather, or all_reduce.
  double gatherSeconds() const { return small[1].seconds; }
  double sumSeconds() const { return small[0].seconds; }

private:
  double rate(size_t kind) const;
};

/// The attention kernels of a compiled program, for one length. `work` counts all scores.
struct AttentionTimes {
  int64_t keys = 0, headDim = 0;
  bool bf16 = false;
  Measurement forward, backward;
};

/// All results. On rank 0 they are complete.
struct Measurements {
  DeviceFacts device;
  Sizes sizes;
  std::vector<Measurement> products, bf16Products; ///< Products of the shapes of `sizes`.
  Measurement copy,                                ///< A copy of memory that no cache holds.
      sum;                                         ///< The sum of two tensors of a layer, on cores.
  Measurement adding,                              ///< A bf16 product that adds to gradients.
      unaligned,         ///< The second bf16 product with one column less: rows are not at multiples of 16 bytes.
      launch,            ///< The smallest piece of work.
      carryOut, carryIn; ///< Copies as in offloading.
  GroupMoves node,       ///< The ranks of a node.
      pair,              ///< Two neighbours in a node that has more.
      across;            ///< One rank of each node, if there are several; each rank is in such a group.
  Measurement meeting;   ///< An all_reduce of 4 kB of the ranks of a node after the first product, on cores.
  Measurement beside;    ///< A product while a large move of all ranks is in flight, including start and wait.
  std::vector<AttentionTimes> attention; ///< The shortest first.
  Measurement update;                    ///< The optimizer's update of a layer's parameters, on cores.
  Measurement streaming;                 ///< Kernels of layers that are limited by memory.
  int threads = 1;                       ///< The threads of a rank.
  int nodeRanks = 1, nodes = 1;
};

/// All measurements in a fixed order.
std::vector<Measurement> allOf(const Measurements &results);

/// The measurement with the largest spread, except latencies.
Measurement noisiest(const Measurements &results);

/// Measures on `target` for about `seconds`, and repeats measurements with a spread above `noise` for up to three times
/// as long. All ranks call it; each node has `nodeRanks` ranks with consecutive numbers. Rank 0 decides what is
/// repeated, and its results count.
Measurements measure(Target &target, pcrt::Comm &comm, int nodeRanks, double seconds, double noise);

} // namespace pc_calibrate

#endif // PC_CALIBRATE_MEASURE_H
