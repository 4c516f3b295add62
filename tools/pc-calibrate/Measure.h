//===- Measure.h - what the ranks of this machine can do -------------------===//
//
// Every rank does the same at the same time, as ranks of a run do: a core that
// works alone is faster than one of many. All measurements go round in turns,
// so that a machine that is busy for a while disturbs each of them a little.
//
//===----------------------------------------------------------------------===//
#ifndef PC_CALIBRATE_MEASURE_H
#define PC_CALIBRATE_MEASURE_H

#include "comm/Comm.h"

#include <string>
#include <vector>

namespace pc_calibrate {

/// How long something took.
struct Measurement {
  std::string name;
  double work = 0;      ///< What one call does: flops, bytes through memory, or bytes that a rank sends.
  double seconds = 0;   ///< Of one call, the median of all rounds.
  double spread = 0;    ///< Between the quartiles, as a share of the median.
  bool isSmall = false; ///< A latency: its spread says little.

  double rate() const { return work / seconds; }
};

struct Measurements {
  std::vector<Measurement> products, bf16Products, ///< Of shapes of transformers.
      memory,                         ///< A copy of arrays that no cache holds, and a sum of three tensors of a layer.
      moves;                          ///< Large ones; without other ranks none.
  Measurement launch;                 ///< Fork and join of a rank's threads.
  std::vector<Measurement> latencies; ///< The same moves of 4 kB.
  int threads = 1;                    ///< Of a rank.
};

/// All of them, in one order.
std::vector<Measurement> allOf(const Measurements &results);

/// The one that differed most, latencies apart.
Measurement noisiest(const Measurements &results);

/// Measures from barrier to barrier for about `seconds`, up to three times until the noisiest measurement differs by
/// `noise` at most. All ranks call it; the results are rank 0's, which decides.
Measurements measure(pcrt::Comm &comm, double seconds, double noise);

} // namespace pc_calibrate

#endif // PC_CALIBRATE_MEASURE_H
