//===- ShmWatcher.h - Ends this rank soon after another one has died ------===//
// A thread sleeps until a peer process ends or a failure is recorded. A rank inside a long computation would notice
// this only at its next move. The watcher gives the rank 0.4 s to notice and then ends the process with exit code 7.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_SHMWATCHER_H
#define PCRT_COMM_SHMWATCHER_H

#include "comm/ShmControl.h"

#include <thread>

namespace pcrt {

/// The watching thread of one rank, from the constructor to the destructor. It borrows the control block.
class ShmWatcher {
public:
  /// Starts the thread, after all ranks have joined. If `launched` is true, pc-run also watches the ranks. The watcher
  /// then lets pc-run report first, because pc-run knows the signal or exit code.
  ShmWatcher(ControlBlock &control, int rank, bool launched);
  ~ShmWatcher();

  /// Says that the main thread knows about the failure and is about to end with `status`.
  void setReported(pcrt_status status) { reported.store(status); }

private:
  void run();
  void peerEnded(int peer);
  void endProcess();
  /// Sleeps. Returns true if the watcher is to stop.
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
