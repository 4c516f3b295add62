//===- Patience.h - The time that a rank waits for others -----------------===//
// A rank that waits longer than the timeout gives up. Two kinds of time do not count: time in which this process was
// suspended, by Ctrl-Z or by a scheduler (which usually suspends all ranks), and time in which a rank did work that is
// known to take long (Comm::Busy).
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_PATIENCE_H
#define PCRT_COMM_PATIENCE_H

#include "comm/ShmControl.h"

#include <algorithm>

namespace pcrt {

/// The clock of one wait of one thread. The waiting loop asks isOver at least every `period` seconds.
class Patience {
public:
  /// The largest number of seconds between two calls of isOver. If a process takes four times as long, it was
  /// suspended.
  static constexpr double period = 0.25;

  explicit Patience(double timeout) : timeout(timeout), last(monotonicSeconds()) {}

  /// Whether the timeout has passed at `now`, in seconds of monotonicSeconds().
  bool isOver(double now) {
    double passed = now - last;
    last = now;
    spent = passed > 4 * period ? 0 : spent + passed;
    return spent >= timeout;
  }
  bool isOver() { return isOver(monotonicSeconds()); }

  /// Call this when the timeout has passed. `idle` is the number of seconds since any rank was busy. Returns true if
  /// the wait may continue.
  bool isExtended(double idle) {
    if (!(idle < timeout))
      return false;
    spent = std::min(spent, idle);
    return true;
  }

  /// The seconds to sleep until the next call of isOver.
  double sleep() const { return std::clamp(timeout - spent, 0.001, period); }

private:
  double timeout, last, spent = 0;
};

constexpr double neverBusy = 1e18; ///< The `idle` of ranks that were never busy.

} // namespace pcrt

#endif // PCRT_COMM_PATIENCE_H
