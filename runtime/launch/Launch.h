//===- Launch.h - Starts the ranks of a run on this machine ---------------===//
// Creates the shared file, starts a process per rank with cores of its own, forwards signals and output, and ends the
// run when one rank fails. Nothing is left behind: ranks die with the launcher, the file has no name.
//===----------------------------------------------------------------------===//
#ifndef PCRT_LAUNCH_LAUNCH_H
#define PCRT_LAUNCH_LAUNCH_H

#include <string>
#include <vector>

namespace pcrt {

struct LaunchOptions {
  int ranks = 1;
  bool virtualRanks = false; ///< One process that is all ranks.
  std::string timeout;       ///< Seconds for PCRT_TIMEOUT_SECONDS; empty: as the environment says.
  double grace = 0;          ///< Seconds that ranks have to save after a signal; 0: as long as it takes.
  int restarts = 0;          ///< How often a run that lost a rank is started again.
  bool pin = true;           ///< Give each rank cores of its own.
  std::vector<std::string> command;
  /// Programs that take the place of command[0], in this order, where fewer ranks are left than it needs.
  std::vector<std::string> others;
};

/// Runs `options.command` on all ranks and returns the exit code of the run: 0 if all ranks ended with 0, else the
/// status of the first failure (7 for a rank that was killed), or 128 + n if this process got signal n. Prints one
/// line to stderr about a failure. A run that lost a rank, or waited for one too long, is started again with the same
/// command, `options.restarts` times; the last one's exit code counts. Where it still loses a rank then, the next of
/// `options.others` that needs fewer goes on, with as many restarts. Rank 0 keeps stdin, stdout and stderr; the others'
/// output goes to stderr, each line with its rank before it.
int launch(const LaunchOptions &options);

} // namespace pcrt

#endif // PCRT_LAUNCH_LAUNCH_H
