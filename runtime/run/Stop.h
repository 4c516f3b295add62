//===- Stop.h - A signal ends a run after a step --------------------------===//
// A run that saves answers SIGTERM, SIGINT, SIGUSR1, SIGHUP and SIGPIPE (its output has no reader) by saving. All ranks
// stop after the same step, no matter which of them got the signal. They ask each other a few times per second, at
// steps that all know in advance.
//===----------------------------------------------------------------------===//
#ifndef PCRT_RUN_STOP_H
#define PCRT_RUN_STOP_H

#include "comm/Comm.h"

namespace pcrt {

/// From now on, the first signal is only recorded; a second one, at least a second later, ends the process. A signal
/// that the process was started to ignore stays ignored.
void noteSignals();
/// The signal for which all ranks have agreed to stop; 0: none.
int stoppedBy();
/// Asks, between steps, whether a rank got a signal, or wants a save. Every rank has one.
class StopCheck {
public:
  explicit StopCheck(Comm &comm) : comm(comm) {}

  /// The actions that all ranks take before a step.
  struct Answer {
    bool stop = false, save = false, written = false;
  };
  /// Returns the same answer on all ranks. All call it before every step; `wantsSave` is true if this rank requests a
  /// save, and `hasWritten` if it has written its part of a checkpoint, which is complete when all ranks have written
  /// theirs.
  Answer ask(int64_t step, bool wantsSave, bool hasWritten);
  /// Whether a rank got a signal; then the next `ask` is answered at once. All ranks call it.
  bool hasSignal();

private:
  Comm &comm;
  int64_t lastStep = -1, nextStep = -1; ///< Steps before which the ranks asked last and will ask next.
  int64_t lastTime = 0;
};

} // namespace pcrt

#endif // PCRT_RUN_STOP_H
