//===- Stragglers.h - Finds slow ranks ------------------------------------===//
// A rank on a slower or busier machine slows down all ranks. Its step takes as long as theirs, but it does not wait. So
// ranks are compared by the time in which they do not wait.
//===----------------------------------------------------------------------===//
#ifndef PCRT_METRICS_STRAGGLERS_H
#define PCRT_METRICS_STRAGGLERS_H

#include "base/Program.h"
#include "comm/Comm.h"

#include <optional>

namespace pcrt {

/// A slow rank.
struct Straggler {
  int rank = 0;
  int64_t steps = 0; ///< The number of steps in which it was the last.
  double factor = 0; ///< Its work in all steps, divided by the median of its peers' work.
};

/// The rank among `peers` (at least 2) that was the last in at least 80 % of the steps, if it took at least a tenth and
/// a millisecond longer. `worked[rank][step]`: seconds in which it did not wait for others.
std::optional<Straggler> findStraggler(const std::vector<std::vector<double>> &worked, const std::vector<int> &peers);

/// Collects the times of the last steps. Every rank has one.
class Stragglers {
public:
  Stragglers(const Program &program, Comm &comm) : program(program), comm(comm) {}
  /// Adds the seconds in which this rank worked. Call it after every step, on all ranks. Every 50 steps rank 0 prints
  /// the slow ranks, unless it named the same ones before. A rank is compared with the ranks of its stage.
  void add(double worked);

private:
  void compare();

  static constexpr size_t window = 50;
  const Program &program;
  Comm &comm;
  std::vector<double> mine;
  std::vector<int> named; ///< The last named rank of each stage; -1: none.
};

} // namespace pcrt

#endif // PCRT_METRICS_STRAGGLERS_H
