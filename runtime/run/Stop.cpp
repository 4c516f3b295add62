//===- Stop.cpp - A signal ends a run after a step ------------------------===//
// The handler only stores the signal. Ranks ask each other about every quarter of a second: the number of steps between
// two questions follows from the slowest rank's time per step, so that all ask before the same step.
//===----------------------------------------------------------------------===//
#include "run/Stop.h"
#include "base/StopSignals.h"
#include "comm/Collective.h"
#include "device/Profile.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <unistd.h>
#include <vector>

using namespace pcrt;

static std::atomic<int> noted{0}, agreed{0};
static std::atomic<int64_t> notedAt{0};

/// A terminal sends a signal to the launcher and to the ranks, and the launcher also passes it on, so signals within a
/// second count as one. SIGPIPE comes with every line if the output has no reader.
static void note(int signal) {
  int before = 0;
  if (noted.compare_exchange_strong(before, signal))
    notedAt = nanoseconds();
  else if (signal != SIGPIPE && notedAt && nanoseconds() - notedAt > 1'000'000'000)
    _exit(128 + signal);
}

void pcrt::noteSignals() {
  struct sigaction action{};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int signal : stopSignals)
    if (!isIgnored(signal))
      sigaction(signal, &action, nullptr);
}

int pcrt::stoppedBy() { return agreed; }

bool StopCheck::hasSignal() {
  int32_t mine = noted;
  std::vector<int32_t> all(comm.size());
  requireOk(comm, comm.allGatherBytes(&mine, sizeof mine, all.data()));
  bool any = std::any_of(all.begin(), all.end(), [](int32_t signal) { return signal != 0; });
  if (any)
    nextStep = -1;
  return any;
}

StopCheck::Answer StopCheck::ask(int64_t step, bool wantsSave, bool hasWritten) {
  if (step < nextStep)
    return {};
  struct Word {
    int64_t signal, nanosecondsPerStep, wantsSave, hasWritten;
  };
  int64_t now = nanoseconds();
  Word mine{noted, lastStep < 0 ? 0 : (now - lastTime) / std::max<int64_t>(step - lastStep, 1), wantsSave, hasWritten};
  std::vector<Word> all(comm.size());
  requireOk(comm, comm.allGatherBytes(&mine, sizeof mine, all.data()));
  int64_t signal = 0, slowest = 0;
  bool save = false, written = true;
  for (const Word &word : all) {
    save |= word.wantsSave != 0;
    written &= word.hasWritten != 0;
    signal = signal ? signal : word.signal;
    slowest = std::max(slowest, word.nanosecondsPerStep);
  }
  // The first two steps show how long a step takes. Then ranks ask every quarter of a second, or before every longer
  // step.
  int64_t steps = slowest ? std::clamp<int64_t>(250'000'000 / slowest, 1, 1 << 20) : 1;
  lastStep = step;
  lastTime = nanoseconds();
  nextStep = step + steps;
  if (signal)
    agreed = int(signal);
  return {signal != 0, save, written};
}
