//===- Main.cpp - The main function of every compiled program -------------===//
// Finds the place of this process among the ranks, reads the flags, and runs all ranks of the process. Each failure is
// reported once; the exit status is its pcrt_status, or 128 + the number of the signal that stopped the run.
//===----------------------------------------------------------------------===//
#include "base/Failure.h"
#include "base/Printing.h"
#include "comm/Environment.h"
#include "comm/ShmControl.h"
#include "cuda/KernelCheck.h"
#include "run/Generation.h"
#include "run/Info.h"
#include "run/Run.h"
#include "run/SameRun.h"
#include "run/Stop.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <new>
#include <optional>
#include <unistd.h>

using namespace pcrt;

/// Reports why the run ends: to the launcher if there is one, otherwise on stderr. If this rank ends only because
/// another one died, it is recorded as a witness and not as the cause, because the launcher may learn later how the
/// other one died.
static void report(const Place &place, const Failure &failure) {
  std::string ignored;
  if (place.sharedFile >= 0) {
    if (ControlBlock *control = mapControl(place.sharedFile, &ignored)) {
      bool lostAnother = failure.status == PCRT_PEER_LOST, isProcess = place.transport != "virtual";
      bool explained =
          !(lostAnother && isProcess) && control->recordFailure(place.rank, failure.status, failure.message);
      if (lostAnother && !explained)
        control->witness.record(place.rank, failure.status, failure.message);
      unmapControl(control);
      return;
    }
  }
  if (place.rank == 0 || failure.status == PCRT_PEER_LOST || failure.status == PCRT_TIMEOUT)
    fprintf(stderr, "pc: error: %s\n", failure.message.c_str());
}

/// Calls f, and turns any exception into a Failure. Here every message of this process is made printable, for the
/// terminal and for other ranks.
template <typename F> static Failure attempt(F f) {
  try {
    f();
  } catch (const Failure &thrown) {
    return {thrown.status, printable(thrown.message)};
  } catch (const std::bad_alloc &) {
    return {PCRT_RESOURCE, "out of memory"};
  } catch (const std::exception &unexpected) {
    return {PCRT_INTERNAL, printable(unexpected.what())};
  }
  return {PCRT_OK, ""};
}

/// Reports a failure, once if several ranks of this process see it.
static void reportOnce(const Place &place, const Failure &failure) {
  static std::atomic<bool> reported{false};
  fflush(stdout);
  if (!reported.exchange(true))
    report(place, failure);
}

/// Makes signals end the run after a step, with a save. Tells the launcher that this rank saves, and whether a restart
/// helps if numbers are not finite.
static void expectSignals(const Place &place, bool goesBack) {
  noteSignals();
  std::string ignored;
  ControlBlock *control = place.sharedFile >= 0 ? mapControl(place.sharedFile, &ignored) : nullptr;
  if (!control)
    return;
  control->rank(place.rank).savesOnSignals = 1;
  control->rank(place.rank).goesBack = goesBack;
  unmapControl(control);
}

/// Fails because the environment is wrong. Then the rank in it may also be wrong: without a launcher, the error is
/// reported as an error of rank 0.
[[noreturn]] static void failAnywhere(Place &place, const std::string &error) {
  if (place.sharedFile < 0)
    place = {};
  fail(PCRT_USAGE, error);
}

static pcrt_status run(int argc, char **argv, Place &place) {
  std::string error;
  if (!readPlace(&place, &error))
    failAnywhere(place, error);
  Options options = parseOptions(argc, argv);
  if (options.help) {
    if (place.rank == 0)
      fputs(helpText, stdout);
    return PCRT_OK;
  }
  Programs programs(pc_program);
  const Program &program = programs.first();
  if (options.version || options.info != Options::Info::No) {
    std::string text = options.version                       ? describeVersions(program)
                       : options.info == Options::Info::Json ? describeAsJson(program).dump(1) + "\n"
                                                             : describeProgram(program);
    if (place.rank == 0)
      fputs(text.c_str(), stdout);
    return PCRT_OK;
  }
  if (options.checkKernels)
    return checkKernels(program);
  bool isOneOf = place.transport != "virtual"; // a virtual process runs all ranks
  if (std::string who = whoSaysSo(place, "; "); !who.empty() && isOneOf && place.size != program.mesh.ranks())
    failAnywhere(place, otherSize(program, place.size) + who);
  if (!options.save.empty() || !options.checkpoint.empty())
    expectSignals(place, options.rollback > 0);
  printInBackground();
  auto runRank = [&](Comm &comm) {
    std::optional<Failure> lost;
    Failure failure = attempt([&] {
      if (program.generates)
        runGeneration(programs.of(comm.rank()), options, comm);
      else
        lost = runProgram(programs.of(comm.rank()), options, comm);
    });
    if (failure.status != PCRT_OK) {
      reportOnce(place, failure);
      comm.abort(failure.status, failure.message.c_str());
    } else if (lost) {
      reportOnce(place, failure = *lost);
    }
    return failure.status;
  };
  pcrt_status status = runRanks(program.mesh.ranks(), program.abi.target == PCRT_CUDA, runRank, &error);
  if (!error.empty())
    fail(status, error);
  return status;
}

static int runProcess(int argc, char **argv) {
  // If a file would be larger than the system allows (ulimit -f), its write fails, and the error names the file.
  signal(SIGXFSZ, SIG_IGN);
  Place place;
  pcrt_status status = PCRT_OK;
  Failure failure = attempt([&] {
    status = run(argc, argv, place);
    if (status == PCRT_OK && stoppedBy() != SIGPIPE && !standardOutputWritten())
      fail(PCRT_RESOURCE, "cannot write to standard output, so some of it is lost; check whether the disk is full");
  });
  if (failure.status == PCRT_OK)
    return status == PCRT_OK && stoppedBy() ? 128 + stoppedBy() : status;
  reportOnce(place, failure);
  return failure.status;
}

int main(int argc, char **argv) {
  holdStandardFiles();
  int status = runProcess(argc, argv);
  // A device that was abandoned may run forever, and exit handlers of its libraries wait for it.
  if (status != PCRT_OK && pc_program.target == PCRT_CUDA) {
    finishPrinting();
    _exit(status);
  }
  return status;
}
