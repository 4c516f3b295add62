//===- Patience.h - How long a rank waits for others ----------------------===//
// A rank that waits longer than the timeout gives up. What does not count: time in which this process was suspended
// (Ctrl-Z, a scheduler: the others were, too), and time in which a rank was at work that is known to take long
// (Comm::Busy).
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_PATIENCE_H
#define PCRT_COMM_PATIENCE_H

#include "comm/ShmControl.h"

#include <algorithm>

namespace pcrt {

class Patience {
public:
  /// Seconds between two looks at `isOver`, at most; a process that takes four times as long was suspended.
  static constexpr double period = 0.25;

  explicit Patience(double timeout) : timeout(timeout), last(monotonicSeconds()) {}

  /// Whether the time is up at `now`, of monotonicSeconds.
  bool isOver(double now) {
    double passed = now - last;
    last = now;
    spent = passed > 4 * period ? 0 : spent + passed;
    return spent >= timeout;
  }
  bool isOver() { return isOver(monotonicSeconds()); }

  /// Called when the time is up: `idle` seconds ago a rank was busy. True: the wait goes on.
  bool isExtended(double idle) {
    if (!(idle < timeout))
      return false;
    spent = std::min(spent, idle);
    return true;
  }

  /// How long to sleep until the next look.
  double sleep() const { return std::clamp(timeout - spent, 0.001, period); }

private:
  double timeout, last, spent = 0;
};

constexpr double neverBusy = 1e18; ///< Seconds since a rank was busy that never was.

} // namespace pcrt

#endif // PCRT_COMM_PATIENCE_H
