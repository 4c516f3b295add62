//===- StopSignals.h - Signals that end a run -----------------------------===//
// The signals on which a run ends after the current step (run/Stop.cpp), and that pc-run passes on to its ranks.
//===----------------------------------------------------------------------===//
#ifndef PCRT_BASE_STOPSIGNALS_H
#define PCRT_BASE_STOPSIGNALS_H

#include <algorithm>
#include <csignal>

namespace pcrt {

/// If a run that saves checkpoints gets one of these signals, it saves a checkpoint. A run gets SIGPIPE if the reader
/// of its output has ended.
constexpr int stopSignals[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGPIPE};

inline bool isStopSignal(int signal) {
  return std::find(std::begin(stopSignals), std::end(stopSignals), signal) != std::end(stopSignals);
}

/// Whether this process ignores the signal. A command under nohup ignores SIGHUP.
inline bool isIgnored(int signal) {
  struct sigaction action{};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

} // namespace pcrt

#endif // PCRT_BASE_STOPSIGNALS_H
