//===- Environment.cpp - The environment that the launcher sets -----------===//
// The variables of pc-run, torchrun, Open MPI's mpirun and Slurm's srun, in this order. All numbers are checked once,
// by readPlace, because some are read later where no error can be reported.
//===----------------------------------------------------------------------===//
#include "comm/Environment.h"
#include "base/Printing.h"
#include "comm/Comm.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

using namespace pcrt;

namespace {

/// Reads integers from the environment, and remembers an error for the first variable that is not an integer in its
/// range.
struct Reader {
  std::string error;

  int integer(const char *name, int otherwise, int least, int most = INT_MAX) {
    const char *text = getenv(name);
    if (!text || !*text)
      return otherwise;
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (!*end && !errno && value >= least && value <= most)
      return int(value);
    refuse(name, most == INT_MAX ? "an integer of at least " + std::to_string(least)
                                 : "an integer from " + std::to_string(least) + " to " + std::to_string(most));
    return otherwise;
  }

  double positive(const char *name, double otherwise) {
    const char *text = getenv(name);
    if (!text || !*text)
      return otherwise;
    char *end;
    double value = strtod(text, &end);
    if (!*end && value > 0)
      return value;
    refuse(name, "a number above 0");
    return otherwise;
  }

private:
  void refuse(const char *name, const std::string &wanted) {
    if (error.empty())
      error = std::string(name) + "='" + getenv(name) + "' is not " + wanted;
  }
};

} // namespace

static std::string text(const char *name) {
  const char *value = getenv(name);
  return value ? value : "";
}

static bool isTransport(const std::string &name) {
  return name == "self" || name == "shm" || name == "mpi" || name == "tcp" || name == "virtual";
}

/// Checks all variables PCRT_* that are numbers or switches and that no launcher sets. They are read in many places,
/// some of which cannot report an error.
static void checkNumbers(Reader &read) {
  read.integer("PCRT_THREADS", 1, 1);
  read.positive("PCRT_TIMEOUT_SECONDS", 1);
  read.integer("PCRT_PORT", 1, 1, 65535);
  read.integer("PCRT_CUDA_DEVICE", 0, 0);
  for (const char *name :
       {"PCRT_POISON", "PCRT_CPU_BF16", "PCRT_CUDA_BLOCKING", "PCRT_CUDA_GRAPH", "PCRT_CUDA_TUNE",
        "PCRT_CUDA_EPILOGUES", "PCRT_CUDA_ROOM", "PCRT_CUDA_SHARE_DEVICE", "PCRT_NCCL_BLOCKING", "PCRT_NCCL_WINDOWS"})
    read.integer(name, 0, 0, 1);
}

std::string pcrt::whoSaysSo(const Place &place, const std::string &before) {
  std::string values, names;
  for (const char *name : place.variables) {
    values += (values.empty() ? "" : " ") + std::string(name) + "=" + text(name);
    names += " " + std::string(name);
  }
  if (names.empty())
    return "";
  return before + values + " are set in the environment; if they are left over from another job, unset" + names;
}

bool pcrt::readPlace(Place *place, std::string *error) {
  Reader read;
  if (getenv("PCRT_RANK")) {
    place->launcher = "pc-run";
    place->rank = place->localRank = read.integer("PCRT_RANK", 0, 0);
    place->size = place->localSize = read.integer("PCRT_SIZE", 1, 1);
    place->sharedFile = read.integer("PCRT_SHM_FD", -1, 0);
    place->run = text("PCRT_RUN");
  } else if (getenv("RANK") && getenv("WORLD_SIZE")) {
    place->launcher = "torchrun";
    place->variables = {"RANK", "WORLD_SIZE"};
    place->rank = read.integer("RANK", 0, 0);
    place->size = read.integer("WORLD_SIZE", 1, 1);
    place->localRank = read.integer("LOCAL_RANK", place->rank, 0);
    place->localSize = read.integer("LOCAL_WORLD_SIZE", place->size, 1);
    place->run = text("MASTER_ADDR") + ":" + text("MASTER_PORT") + "/" + text("TORCHELASTIC_RUN_ID") + "/" +
                 text("TORCHELASTIC_RESTART_COUNT");
    if (place->size > 1 && !getenv("MASTER_PORT") && read.error.empty())
      read.error = "RANK and WORLD_SIZE are set, but MASTER_ADDR and MASTER_PORT are not" + whoSaysSo(*place, "; ");
  } else if (getenv("OMPI_COMM_WORLD_RANK")) {
    place->launcher = "mpirun";
    place->variables = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"};
    place->rank = read.integer("OMPI_COMM_WORLD_RANK", 0, 0);
    place->size = read.integer("OMPI_COMM_WORLD_SIZE", 1, 1);
    place->localRank = read.integer("OMPI_COMM_WORLD_LOCAL_RANK", place->rank, 0);
    place->localSize = read.integer("OMPI_COMM_WORLD_LOCAL_SIZE", place->size, 1);
    place->run = text("PMIX_NAMESPACE") + "/" + text("OMPI_MCA_ess_base_jobid");
  } else if (getenv("SLURM_PROCID") && getenv("SLURM_STEP_NUM_TASKS")) {
    place->launcher = "srun";
    place->variables = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"};
    place->rank = read.integer("SLURM_PROCID", 0, 0);
    place->size = read.integer("SLURM_STEP_NUM_TASKS", 1, 1);
    place->localRank = read.integer("SLURM_LOCALID", place->rank, 0);
    int nodes = read.integer("SLURM_STEP_NUM_NODES", 1, 1);
    place->localSize = (place->size + nodes - 1) / nodes;
    place->run = text("SLURM_JOB_ID") + "." + text("SLURM_STEP_ID");
  }
  checkNumbers(read);
  std::string why = whoSaysSo(*place, "; ");
  if (read.error.empty() && place->rank >= place->size)
    read.error = "rank " + std::to_string(place->rank) + " does not exist in a run of " + std::to_string(place->size) +
                 " ranks (environment of " + place->launcher + ")" + why;
  place->transport = text("PCRT_TRANSPORT");
  if (place->transport.empty())
    place->transport = place->size == 1 ? "self" : place->localSize >= place->size ? "shm" : "mpi";
  else if (read.error.empty() && !isTransport(place->transport))
    read.error = "PCRT_TRANSPORT='" + place->transport + "' is not one of self, shm, mpi, tcp, virtual";
  if (read.error.empty() && place->transport == "virtual" && place->size > 1 && place->launcher != "pc-run")
    read.error = "PCRT_TRANSPORT=virtual runs all ranks in one process, but " + place->launcher + " started " +
                 std::to_string(place->size) + "; start the program alone, or with pc-run --virtual" + why;
  *error = read.error;
  return read.error.empty();
}

std::vector<int> pcrt::coresOfRank(const std::vector<int> &cores, int rank, int ranks) {
  int count = int(cores.size());
  if (ranks >= count)
    return {cores[rank % count]};
  return {cores.begin() + rank * count / ranks, cores.begin() + (rank + 1) * count / ranks};
}

std::vector<int> pcrt::coresOfProcess() {
  cpu_set_t set;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set))
        cores.push_back(core);
  return cores.empty() ? std::vector<int>{0} : cores;
}

void pcrt::pinToCores(const std::vector<int> &cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int core : cores)
    CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);
}

void pcrt::holdStandardFiles() {
  int file = open("/dev/null", O_RDWR);
  while (file >= 0 && file <= 2)
    file = open("/dev/null", O_RDWR);
  if (file > 2)
    close(file);
}

bool pcrt::standardOutputWritten() { return fflush(stdout) == 0 && !ferror(stdout) && finishPrinting(); }

bool pcrt::switchedOn(const char *variable, bool unset) {
  const char *value = getenv(variable);
  return value && *value ? strcmp(value, "0") != 0 : unset;
}

double pcrt::timeoutSeconds() { return Reader().positive("PCRT_TIMEOUT_SECONDS", 300); }

int pcrt::threadsOfThisRank() {
  Reader read;
  constexpr int most = 1024; // a larger number is a mistake, and would take minutes to start
  if (int threads = read.integer("PCRT_THREADS", 0, 1))
    return std::min(threads, most);
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0)
    return 1;
  int count = CPU_COUNT(&cores);
  // If a launcher does not pin ranks, each rank of the machine sees all cores.
  Place place;
  std::string error;
  if (readPlace(&place, &error) && place.launcher == "torchrun")
    count = count > place.localSize ? count / place.localSize : 1;
  return count > 0 ? count : 1;
}
