//===- Environment.h - what the launcher says about this rank -------------===//
//
// Every launcher tells its processes their place in environment variables of
// its own; here they are read once into one form.
//
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
  int localRank = 0, localSize = 1; ///< Among the ranks of this machine.
  std::string run;                  ///< Names the run: the same on all of its ranks, different for other runs.
  int sharedFile = -1;              ///< pc-run only: the descriptor of the shared file, else -1.
  /// PCRT_TRANSPORT or the choice made for it. `virtual`: this process is all ranks; `size` is 1 where the program says
  /// how many they are.
  std::string transport;
};

/// Reads the environment. On nonsense returns false and says which variable is wrong.
bool readPlace(Place *place, std::string *error);

/// The cores that this process (or thread) may run on; at least one.
std::vector<int> coresOfProcess();

/// The cores (indices into `cores`) of rank `rank` of `ranks`: an even share, or one core in turn where there are
/// more ranks than cores.
std::vector<int> coresOfRank(const std::vector<int> &cores, int rank, int ranks);

/// Keeps the calling thread, and those it starts, on these cores.
void pinToCores(const std::vector<int> &cores);

/// Opens standard input, output and error where they are closed: files that are opened later must not take their
/// numbers. Called first.
void holdStandardFiles();

/// Whether all that was printed is where it was to go.
bool standardOutputWritten();

/// Whether an environment variable is set to something else than 0; `unset` where it is not set.
bool switchedOn(const char *variable, bool unset);

/// PCRT_TIMEOUT_SECONDS: how long a rank waits for another one; 300 if unset or malformed.
double timeoutSeconds();

} // namespace pcrt

#endif // PCRT_COMM_ENVIRONMENT_H
