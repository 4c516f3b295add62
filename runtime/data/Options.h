//===- Options.h - The command line of a compiled program -----------------===//
// One struct with all flags, their defaults, and which of them must agree between ranks and with a checkpoint.
// docs/command-line.md describes them.
//===----------------------------------------------------------------------===//
#ifndef PCRT_DATA_OPTIONS_H
#define PCRT_DATA_OPTIONS_H

#include "data/SampleOrder.h"
#include "pcrt/outputs.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pcrt {

/// The interval between saves in steps or in minutes; if both are 0, the run chooses the interval that costs least.
struct SaveInterval {
  int64_t steps = 0, minutes = 0;
};

/// The file or directory that the run writes for a flag; empty: the flag is not given.
struct OutputPath : std::string {
  using std::string::operator=;
};

/// The values of all flags. A path that is empty was not given.
struct Options {
  /// The form of --info's answer.
  enum class Info { No, Text, Json };
  bool help = false, version = false, eval = false, checkKernels = false;
  Info info = Info::No;
  std::string data, targets; ///< The arguments of openSamples.
  bool shuffle = false;
  HeldOut validation;
  int64_t evalEvery = 0;              ///< Steps between two evaluations on the samples of `validation`; 0: none.
  std::optional<int64_t> evalBatches; ///< Batches of each evaluation; without it, all samples of `validation`.
  std::string init, adapter, load;    ///< Empty: not given.
  OutputPath save, checkpoint;
  bool overwrite = false;            ///< The run may replace a checkpoint in `save` that it does not continue.
  std::optional<SaveInterval> every; ///< The interval of the checkpoints in `checkpoint`.
  std::optional<int64_t> keep;       ///< The number of checkpoints that are kept; default 2.
  int64_t rollback = 0; ///< The least steps to go back if numbers were not finite; 0: to the newest checkpoint.
  std::string requests, answers; ///< For programs that generate text: files or pipes; empty: standard input and output.
  std::string meet, name;        ///< HOST:PORT of pc-meet, and the name of this member of open local SGD.
  std::string scratch;           ///< The directory for arenas on disk.
  std::string change;            ///< Names, separated by commas.
  OutputPath metrics, tensorboard, summary, dumpGrads, dumpLogits, dumpRouting, trace;
  std::string routing;               ///< The file from which choices of experts are read.
  std::optional<int64_t> stepsGiven; ///< --steps
  /// The step at which the run ends, counted from the first step of training; for an evaluation, its batches.
  int64_t steps = 100;
  uint64_t seed = 0;
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  int64_t lrWarmup = 0;         ///< Steps over which the rate rises linearly to `lr`.
  std::string lrDecay = "none"; ///< The curve from there to `minLr`.
  std::optional<int64_t>
      lrSteps; ///< The step at which the rate reaches `minLr`. Default: the checkpoint's, or `steps`.
  std::optional<int64_t>
      lrStable; ///< For "wsd": the step at which the rate begins to fall. Default: 9/10 of `lrSteps`.
  double minLr = 0;
  double clip = std::numeric_limits<double>::infinity();
  std::optional<double> skipSpikes;  ///< A step is skipped if its norm is this many standard deviations above the mean.
  int64_t checkReplicas = 0;         ///< Steps from one check to the next; 0: never.
  int64_t snapshot = 0;              ///< Steps from one copy of the state in memory to the next; 0: there are none.
  std::optional<int64_t> skipMost;   ///< See mostSkipped.
  std::optional<double> weightDecay; ///< Default: 1e-2 for AdamW, 0 for SGD.

  /// The learning rate of step `step`, counted from 0. It depends only on the flags and the step, so a run that
  /// continues a checkpoint continues the curve.
  double rateAt(int64_t step) const;
  /// The largest number of steps in a row that may be skipped.
  int64_t mostSkipped() const { return skipMost.value_or(skipSpikes ? 10 : 0); }

  /// Whether --change names this flag (without "--") or part of a trajectory.
  bool mayChange(const std::string &name) const;
};

/// A flag as messages and files show it: its name without "--", and its value, given or by default.
using FlagValue = std::pair<std::string, std::string>;

/// The flags on which the numbers of training depend. Their texts are compared between ranks, and with the texts in a
/// checkpoint.
std::vector<FlagValue> trajectoryFlags(const Options &options);

/// Returns the flags that must be the same on all ranks for other reasons: the length of the run, and flags about work
/// that ranks do together.
std::vector<FlagValue> sharedFlags(const Options &options);

/// Warns if the learning rate ends at 0 before the last step, so that later steps change nothing. `goesOn` is true if
/// the run continues from a checkpoint.
void warnOfEndedCurve(const Options &options, int64_t firstStep, bool goesOn);

/// The files and directories that the run writes, with their flags.
std::vector<NamedPath> outputsOf(const Options &options);

/// Reads the flags, as "--flag value" or "--flag=value". Throws PCRT_USAGE with the flag and its form.
Options parseOptions(int argc, char **argv);

/// The text of --help.
extern const char *const helpText;

} // namespace pcrt

#endif // PCRT_DATA_OPTIONS_H
