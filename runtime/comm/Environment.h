//===- Environment.h - The environment that the launcher sets -------------===//
// Every launcher uses its own environment variables to tell processes their rank. These functions read them into one
// form.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_ENVIRONMENT_H
#define PCRT_COMM_ENVIRONMENT_H

#include <string>
#include <vector>

namespace pcrt {

/// This process's place in its run.
struct Place {
  std::string launcher = "none"; ///< "pc-run", "torchrun", "mpirun", "srun" or "none".
  int rank = 0, size = 1;
  int localRank = 0, localSize = 1;    ///< Among the ranks of this machine.
  std::string run;                     ///< Names the run: the same on all of its ranks, different for other runs.
  int sharedFile = -1;                 ///< Under pc-run, the descriptor of the shared file; otherwise -1.
  std::vector<const char *> variables; ///< The launcher's variables from which these values come.
  /// PCRT_TRANSPORT or the default. With `virtual`, this process runs all ranks. If the program gives the number of
  /// virtual ranks, `size` is 1.
  std::string transport;
};

/// Advice for messages: how to connect the ranks of several machines without MPI.
inline constexpr const char *overTcp = "set PCRT_TRANSPORT=tcp and the same PCRT_SECRET for all ranks (for small runs, "
                                       "since all data then passes through rank 0)";

/// Reads the environment. If a variable is wrong, returns false with a message that names it. Numbers in variables
/// PCRT_* are also checked.
bool readPlace(Place *place, std::string *error);

/// Returns `before`, followed by "RANK=0 WORLD_SIZE=8 in the environment say so; if they are left over from another
/// job: unset RANK WORLD_SIZE". Returns "" if neither pc-run nor a launcher started this process.
std::string whoSaysSo(const Place &place, const std::string &before);

/// The cores that this process (or thread) may run on; at least one.
std::vector<int> coresOfProcess();

/// Returns the part of `cores` for rank `rank` of `ranks`. This is an even share, or one core in turn if there are at
/// least as many ranks as cores.
std::vector<int> coresOfRank(const std::vector<int> &cores, int rank, int ranks);

/// Pins the calling thread, and the threads that it starts, to these cores.
void pinToCores(const std::vector<int> &cores);

/// If standard input, output or error is closed, opens /dev/null in its place, because files that are opened later must
/// not get its number. Call this first.
void holdStandardFiles();

/// Whether everything that was printed to standard output has been written.
bool standardOutputWritten();

/// Whether an environment variable is set to something other than 0; returns `unset` if it is not set. readPlace has
/// refused values other than 0 and 1.
bool switchedOn(const char *variable, bool unset);

/// Returns PCRT_TIMEOUT_SECONDS, which is how long a rank waits for another one; 300 if unset.
double timeoutSeconds();

} // namespace pcrt

#endif // PCRT_COMM_ENVIRONMENT_H
