//===- pc-calibrate.cpp - Measures this machine for pc-compile ------------===//
// Times kernels of compiled programs first, then starts itself as the ranks of this machine (or runs as ranks that a
// launcher has started), which measure products, memory and moves. Rank 0 writes the machine file for pc-compile
// --machine.
//===----------------------------------------------------------------------===//
#include "Figures.h"
#include "Kernels.h"
#include "base/FileStream.h"
#include "comm/Collective.h"
#include "comm/Environment.h"
#include "comm/ShmControl.h"
#include "launch/Launch.h"
#include "metrics/PeakRate.h"
#include "pcrt/outputs.h"
#include "pcrt/version.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <unistd.h>

using namespace pcrt;
using namespace pc_calibrate;

static const char usage[] =
    R"(usage: pc-calibrate [-o FILE.json] [-n RANKS] [--target=cpu|cuda] [options]

Measures the speed of ranks on this machine's CPUs or CUDA devices, and writes it as a machine for
pc-compile --machine=FILE.json. Without -o, the file is the one for --machine=here. All ranks work at the same time,
as in a run, so the figures hold for runs with the same number of ranks. On several nodes (mpirun, torchrun, srun),
communication is measured within a node and between nodes. Attention is measured with programs that pc-compile makes
meanwhile; it is not measured if pc-compile is not next to this tool, or under mpirun, torchrun or srun.

  -o FILE.json     output file (default for CPUs: $XDG_CACHE_HOME/pc/here.json or ~/.cache/pc/here.json)
  -n RANKS         number of ranks, as for pc-run (default: one per core or device); mpirun, torchrun and srun set it
  --target=TARGET  cpu, or cuda with one device per rank, which needs -o (default cpu)
  --scratch DIR    CPUs: also measure the disk of this directory, for plans with --offload
  --seconds S      approximate time to measure; noisy measurements are repeated, for up to three times as long (default 10;
                   for devices 45)
  --noise SHARE    largest accepted interquartile range of a measurement, relative to its median (default 0.05)
  --version        print the version
  --help           show this text

exit codes: 2 usage, 6 resource (no room for the file, no device, or a machine too busy to measure), 7 a rank was lost, 8 timeout.
)";

namespace {
/// The flags of the command line.
struct Options {
  std::string output, scratch;
  int ranks = 0;
  bool cuda = false;
  double seconds = 0, noise = 0.05;
};
} // namespace

/// The variable by which the ranks that this process starts get the file with the times of kernels.
static constexpr char kernelsVariable[] = "PC_CALIBRATE_KERNELS";

static Options parse(int argc, char **argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string flag = argv[i], value;
    size_t equals = flag.find('=');
    bool joined = flag.compare(0, 2, "--") == 0 && equals != std::string::npos;
    if (joined) {
      value = flag.substr(equals + 1);
      flag.resize(equals);
    }
    if (flag != "-o" && flag != "-n" && flag != "--target" && flag != "--noise" && flag != "--seconds" &&
        flag != "--scratch")
      fail(PCRT_USAGE, "unknown flag '" + std::string(argv[i]) + "'; see --help");
    if (!joined && i + 1 == argc)
      fail(PCRT_USAGE, flag + " needs a value; see --help");
    value = joined ? value : argv[++i];
    char *end = nullptr;
    if (flag == "-o") {
      if (value.size() < 6 || value.compare(value.size() - 5, 5, ".json") != 0)
        fail(PCRT_USAGE, "-o takes the name of a *.json file, as pc-compile --machine does, not '" + value + "'");
      options.output = value;
    } else if (flag == "-n") {
      long ranks = strtol(value.c_str(), &end, 10);
      if (value.empty() || *end || ranks < 1 || ranks > 1024)
        fail(PCRT_USAGE, "-n takes a number of ranks from 1 to 1024, not '" + value + "'");
      options.ranks = int(ranks);
    } else if (flag == "--target") {
      if (value != "cpu" && value != "cuda")
        fail(PCRT_USAGE, "--target must be cpu or cuda, not '" + value + "'");
      options.cuda = value == "cuda";
    } else if (flag == "--scratch") {
      options.scratch = value;
    } else {
      double number = strtod(value.c_str(), &end);
      if (value.empty() || *end || !(number > 0) || number > 1e6)
        fail(PCRT_USAGE, flag + " takes a number above 0, not '" + value + "'");
      (flag == "--noise" ? options.noise : options.seconds) = number;
    }
  }
  if (options.seconds == 0)
    options.seconds = options.cuda ? 45 : 10;
  if (options.output.empty() && options.cuda)
    fail(PCRT_USAGE, "--target=cuda needs -o FILE.json, because --machine=here describes the CPUs of this machine");
  if (options.output.empty())
    options.output = calibratedMachine();
  if (options.output.empty())
    fail(PCRT_USAGE, "neither XDG_CACHE_HOME nor HOME is set, so there is no default output file; add -o FILE.json");
  return options;
}

static std::string text(double number) {
  char text[32];
  snprintf(text, sizeof text, "%.17g", number);
  return text;
}

static void writeMachine(const std::string &path, const Json &machine) {
  std::error_code error;
  if (std::string folder = std::filesystem::path(path).parent_path(); !folder.empty())
    std::filesystem::create_directories(folder, error);
  std::string text = machine.dump(1) + "\n";
  OutputFile file;
  if (!file.open(path) || !writeAll(file.descriptor(), text.data(), int64_t(text.size()), 0) || !file.commit())
    fail(PCRT_RESOURCE, withErrno("cannot write " + path));
}

/// Rank 0 prints the results and writes the machine file.
static void report(const Options &options, const Place &place, const Measurements &results) {
  for (const Measurement &one : allOf(results)) {
    printf("%-44s %10.3g s  +-%5.1f %%", one.name.c_str(), one.seconds, one.spread * 50);
    printf(one.work > 0 ? "  %8.1f G/s\n" : "\n", one.rate() * 1e-9);
  }
  Measurement worst = noisiest(results);
  if (worst.spread > options.noise) {
    char text[64];
    snprintf(text, sizeof text, "%.0f %% (interquartile range)", worst.spread * 100);
    fail(PCRT_RESOURCE, "this machine is too busy to be measured: the times of '" + worst.name + "' vary by " + text +
                            "; try again when the machine is idle, or allow more with --noise");
  }
  Json machine = machineOf(results, place.size, worst.spread);
  writeMachine(options.output, machine);
  std::string guesses;
  for (const Json &guess : machine["measured"]["guesses"])
    guesses += (guesses.empty() ? "" : ", ") + guess.get<std::string>();
  printf("not measured, copied from machine '%s': %s\n%s\n", machine["like"].get<std::string>().c_str(),
         guesses.c_str(), options.output.c_str());
  if (!standardOutputWritten())
    fail(PCRT_RESOURCE, "cannot write to standard output");
}

/// Throws if the ranks of a node are not consecutive, or nodes have different numbers of ranks.
static void checkPlaces(Comm &comm, const Place &place) {
  int32_t mine[2] = {std::min(place.localSize, place.size), place.localRank};
  std::vector<int32_t> all(size_t(comm.size()) * 2);
  requireOk(comm, comm.allGatherBytes(mine, sizeof mine, all.data()));
  for (int rank = 0; rank < comm.size(); ++rank)
    if (all[2 * rank] != all[0] || comm.size() % all[0] != 0 || all[2 * rank + 1] != rank % all[0])
      fail(PCRT_USAGE, "every node must have the same number of ranks, numbered consecutively, as torchrun, srun and "
                       "mpirun --map-by ppr:N:node start them");
}

/// Reports a failure to the launcher, or to standard error if pc-run has not started this rank.
static void tell(const Place &place, const Failure &failure) {
  std::string ignored;
  ControlBlock *control = place.sharedFile >= 0 ? mapControl(place.sharedFile, &ignored) : nullptr;
  if (control) {
    control->recordFailure(place.rank, failure.status, failure.message);
    unmapControl(control);
  } else if (place.rank == 0 || failure.status == PCRT_PEER_LOST || failure.status == PCRT_TIMEOUT) {
    fprintf(stderr, "pc-calibrate: error: %s\n", failure.message.c_str());
  }
}

/// One rank of the measurement.
static pcrt_status runRank(const Options &options, const Place &place, Comm &comm) {
  std::unique_ptr<Target> target;
  try {
    checkPlaces(comm, place);
    const char *ordinal = getenv("PCRT_CUDA_DEVICE");
    target = options.cuda ? makeCudaTarget(comm, ordinal ? atoi(ordinal) : place.localRank)
                          : makeCpuTarget(comm, options.scratch);
    Measurements results =
        measure(*target, comm, std::min(place.localSize, place.size), options.seconds, options.noise);
    if (const char *kernels = getenv(kernelsVariable); kernels && comm.rank() == 0)
      readKernels(kernels, results);
    if (comm.rank() == 0)
      report(options, place, results);
    return PCRT_OK;
  } catch (const Failure &failure) {
    fflush(stdout);
    tell(place, failure);
    comm.abort(failure.status, failure.message.c_str());
    _exit(failure.status); // a device may wait for ranks that are gone
  }
}

/// Measures kernels, then starts the ranks.
static int launchRanks(Options options) {
  KernelsOn on;
  Devices devices = options.cuda ? devicesOfMachine() : Devices();
  if (!options.ranks)
    options.ranks = options.cuda ? devices.count : int(coresOfProcess().size());
  on.ranks = options.cuda ? 1 : options.ranks;
  on.arch = devices.arch;
  on.isStandIn = devices.isStandIn;
  on.isShort = options.seconds < 1;
  on.noise = options.noise;
  Folder folder;
  if (canTimeKernels()) {
    std::string kernels = folder.at / "kernels.json";
    timeKernels(on, kernels);
    setenv(kernelsVariable, kernels.c_str(), 1);
  }
  LaunchOptions launching;
  launching.ranks = options.ranks;
  launching.command = {std::filesystem::canonical("/proc/self/exe"),
                       "-o",
                       options.output,
                       options.cuda ? "--target=cuda" : "--target=cpu",
                       "--noise",
                       text(options.noise),
                       "--seconds",
                       text(options.seconds)};
  if (!options.scratch.empty())
    launching.command.insert(launching.command.end(), {"--scratch", options.scratch});
  return launch(launching);
}

int main(int argc, char **argv) {
  holdStandardFiles();
  for (int i = 1; i < argc; ++i)
    if (bool help = !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"); help || !strcmp(argv[i], "--version")) {
      if (help)
        fputs(usage, stdout);
      else
        printf("pc-calibrate %s\n", pcrt_version);
      return standardOutputWritten() ? PCRT_OK : PCRT_RESOURCE;
    }
  try {
    Options options = parse(argc, argv);
    Place place;
    std::string error;
    if (!readPlace(&place, &error))
      fail(PCRT_USAGE, error);
    if (place.launcher == "none")
      return launchRanks(options);
    pcrt_status status = runRanks(1, options.cuda, [&](Comm &comm) { return runRank(options, place, comm); }, &error);
    if (!error.empty())
      fail(status, error);
    return status;
  } catch (const Failure &failure) {
    fprintf(stderr, "pc-calibrate: error: %s\n", failure.message.c_str());
    return failure.status;
  }
}
