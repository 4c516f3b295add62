//===- ShmWatcher.h - Ends this rank soon after another one died ----------===//
// A thread that sleeps until a peer process ends or a failure is recorded. A rank inside a long computation would
// notice only at its next move; the watcher gives it a moment to do so and then ends the process with exit 7.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_SHMWATCHER_H
#define PCRT_COMM_SHMWATCHER_H

#include "comm/ShmControl.h"

#include <thread>

namespace pcrt {

class ShmWatcher {
public:
  /// Starts watching; all ranks have joined. `launched`: pc-run watches too and knows better how a rank died.
  ShmWatcher(ControlBlock &control, int rank, bool launched);
  ~ShmWatcher();

  /// The main thread knows about the failure and is about to leave with `status`.
  void setReported(pcrt_status status) { reported.store(status); }

private:
  void run();
  void peerEnded(int peer);
  void endProcess();
  /// Sleeps; true if the watcher is to stop.
  bool stoppedWithin(int milliseconds);

  ControlBlock &control;
  int rank;
  bool launched;
  int stopEvent;
  std::atomic<int> reported{PCRT_OK};
  std::thread thread;
};

} // namespace pcrt

#endif // PCRT_COMM_SHMWATCHER_H
