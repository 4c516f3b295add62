//===- Stragglers.h - Ranks that the others wait for ----------------------===//
// A rank on a slower or busier machine makes all of them as slow, and its own step takes no longer than theirs: what it
// does not do is wait.
//===----------------------------------------------------------------------===//
#ifndef PCRT_METRICS_STRAGGLERS_H
#define PCRT_METRICS_STRAGGLERS_H

#include "base/Program.h"
#include "comm/Comm.h"

#include <optional>

namespace pcrt {

struct Straggler {
  int rank = 0;
  int64_t steps = 0; ///< In which it was the last.
  double factor = 0; ///< How much longer its work took than that of the median of its like, in all steps.
};

/// The rank among `peers` (at least 2) that was the last in at least 80 % of the steps, if it took at least a tenth and
/// a millisecond longer. `worked[rank][step]`: seconds in which it did not wait for others.
std::optional<Straggler> findStraggler(const std::vector<std::vector<double>> &worked, const std::vector<int> &peers);

class Stragglers {
public:
  Stragglers(const Program &program, Comm &comm) : program(program), comm(comm) {}

  /// After every step, on all ranks: the seconds in which this rank worked. Every 50 steps rank 0 names who was slow,
  /// unless it did the last time. Ranks are compared with those that do the same: of their stage.
  void add(double worked);

private:
  void compare();

  static constexpr size_t window = 50;
  const Program &program;
  Comm &comm;
  std::vector<double> mine;
  std::vector<int> named; ///< The last time, by stage; -1: nobody.
};

} // namespace pcrt

#endif // PCRT_METRICS_STRAGGLERS_H
