//===- Launch.h - Starts the ranks of a run on this machine ---------------===//
// Creates the shared file, starts one process per rank with cores of its own, forwards signals and output, and ends the
// run when a rank fails. Nothing is left over: ranks die with the launcher, and the file has no name. It is the
// equivalent of torchrun or mpirun on one machine.
//===----------------------------------------------------------------------===//
#ifndef PCRT_LAUNCH_LAUNCH_H
#define PCRT_LAUNCH_LAUNCH_H

#include <string>
#include <vector>

namespace pcrt {

/// The command line of pc-run.
struct LaunchOptions {
  int ranks = 1;
  bool virtualRanks = false; ///< One process runs all ranks.
  std::string timeout;       ///< Seconds for PCRT_TIMEOUT_SECONDS; empty: the environment's.
  double grace = 0;          ///< Seconds that ranks have to save after a signal; 0: no limit.
  int restarts = 0;          ///< How often a run that lost a rank is restarted.
  bool pin = true;           ///< Pin each rank to its own cores.
  std::vector<std::string> command;
  /// Programs that replace command[0], in this order, if fewer ranks are left than it needs.
  std::vector<std::string> others;
};

/// Runs `options.command` on all ranks and returns the exit code of the run. This is 0 if all ranks ended with 0,
/// otherwise the status of the first failure (7 for a rank that was killed), or 128 + n if this process got signal n.
/// Prints one line about a failure to stderr.
/// A run that lost a rank, or waited too long for one, is restarted with the same command, `options.restarts` times;
/// the last exit code counts. If it still loses a rank then, the next of `options.others` that needs fewer ranks
/// continues, with the same number of restarts. Rank 0 keeps stdin, stdout and stderr. The output of the other ranks
/// goes to stderr, each line prefixed with its rank.
int launch(const LaunchOptions &options);

} // namespace pcrt

#endif // PCRT_LAUNCH_LAUNCH_H
