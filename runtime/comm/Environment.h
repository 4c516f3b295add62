//===- Environment.h - What the launcher says about this rank -------------===//
// Every launcher tells its processes their place in environment variables of its own; here they are read once into one
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
  int sharedFile = -1;                 ///< pc-run only: the descriptor of the shared file, else -1.
  std::vector<const char *> variables; ///< The launcher's that say so, which are set.
  /// PCRT_TRANSPORT or the choice made for it. `virtual`: this process is all ranks; `size` is 1 where the program says
  /// how many they are.
  std::string transport;
};

/// What connects ranks of several machines where MPI does not.
inline constexpr const char *overTcp =
    "set PCRT_TRANSPORT=tcp and one PCRT_SECRET for all ranks (all data then pass through rank 0: for small runs)";

/// Reads the environment. On nonsense, also in the numbers of variables PCRT_*, returns false and says which variable
/// is wrong.
bool readPlace(Place *place, std::string *error);

/// `before` and "RANK=0 WORLD_SIZE=8 in the environment say so; if they are left over from another job: unset RANK
/// WORLD_SIZE". Empty where no launcher, or pc-run, has started this process.
std::string whoSaysSo(const Place &place, const std::string &before);

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

/// Whether an environment variable is set to something else than 0; `unset` where it is not set. readPlace has refused
/// what is neither 0 nor 1.
bool switchedOn(const char *variable, bool unset);

/// PCRT_TIMEOUT_SECONDS: how long a rank waits for another one; 300 if unset.
double timeoutSeconds();

} // namespace pcrt

#endif // PCRT_COMM_ENVIRONMENT_H
