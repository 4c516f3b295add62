//===- ShmWatcher.cpp - Ends this rank soon after another one has died ----===//
// Watches every peer by a pidfd (pidfd_open(2)). The thread also writes this rank's heartbeat, by which others tell a
// busy rank from a suspended one.
//===----------------------------------------------------------------------===//
#include "comm/ShmWatcher.h"
#include "base/Printing.h"
#include "base/SignalMask.h"

#include <cerrno>
#include <cstdio>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace pcrt;

ShmWatcher::ShmWatcher(ControlBlock &control, int rank, bool launched)
    : control(control), rank(rank), launched(launched), stopEvent(eventfd(0, EFD_CLOEXEC)) {
  SignalsMasked masked;
  thread = std::thread([this] { run(); });
}

ShmWatcher::~ShmWatcher() {
  eventfd_write(stopEvent, 1);
  thread.join();
  close(stopEvent);
}

bool ShmWatcher::stoppedWithin(int milliseconds) {
  pollfd stop{stopEvent, POLLIN, 0};
  return poll(&stop, 1, milliseconds) > 0;
}

void ShmWatcher::run() {
  // Entry r watches rank r, the last one `stopEvent`. An entry with a negative descriptor is ignored by poll.
  std::vector<pollfd> watched(control.size + 1);
  for (int peer = 0; peer < control.size; ++peer) {
    int pid = control.rank(peer).pid.load();
    watched[peer] = {peer == rank ? -1 : int(syscall(SYS_pidfd_open, pid, 0)), POLLIN, 0};
    if (peer != rank && watched[peer].fd < 0 && errno == ESRCH)
      peerEnded(peer);
  }
  watched[control.size] = {stopEvent, POLLIN, 0};
  bool over = false;
  while (!over) {
    control.rank(rank).heartbeat.store(int64_t(monotonicSeconds() * 1e9));
    poll(watched.data(), watched.size(), 100);
    if (watched[control.size].revents)
      break;
    for (int peer = 0; peer < control.size; ++peer) {
      if (watched[peer].fd >= 0 && watched[peer].revents) {
        close(watched[peer].fd);
        watched[peer].fd = -1;
        peerEnded(peer);
      }
    }
    if (control.failed()) {
      over = true;
      if (control.failure.rank != rank)
        endProcess();
    }
  }
  for (int peer = 0; peer < control.size; ++peer)
    if (watched[peer].fd >= 0)
      close(watched[peer].fd);
}

void ShmWatcher::peerEnded(int peer) {
  if (control.rank(peer).left.load())
    return;
  // The launcher knows the signal or the exit code, so it gets time to report them first.
  for (int i = 0; launched && i < 20 && !control.failed(); ++i)
    if (stoppedWithin(10))
      return;
  control.recordFailure(peer, PCRT_PEER_LOST,
                        "rank " + std::to_string(peer) + " died (process " +
                            std::to_string(control.rank(peer).pid.load()) + ")");
}

void ShmWatcher::endProcess() {
  if (stoppedWithin(400))
    return;
  if (reported.load() == PCRT_OK) {
    fprintf(stderr, "error: rank %d: %s; the run has ended\n", rank, control.failure.message);
    finishPrinting();
    _exit(PCRT_PEER_LOST);
  }
  // The main thread is about to end the process, but destructors and exit handlers may hang.
  if (!stoppedWithin(300))
    _exit(reported.load());
}
