//===- Options.h - The command line of a compiled program -----------------===//
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

/// How often a run saves: every so many steps, every so many minutes, or, where both are 0, as often as costs least.
struct SaveInterval {
  int64_t steps = 0, minutes = 0;
};

/// What a flag names that the run writes: a file or a directory. Empty: not given.
struct OutputPath : std::string {
  using std::string::operator=;
};

struct Options {
  /// How --info is to be answered.
  enum class Info { No, Text, Json };
  bool help = false, version = false, eval = false, checkKernels = false;
  Info info = Info::No;
  std::string data, targets; ///< As TokenData takes them; empty: not given.
  bool shuffle = false;
  HeldOut validation;
  int64_t evalEvery = 0;              ///< Steps between two evaluations on what `validation` holds out; 0: none.
  std::optional<int64_t> evalBatches; ///< Of each; without it: all that is held out.
  std::string init, load;             ///< Empty: not given.
  OutputPath save, checkpoint;
  bool overwrite = false;            ///< `save` may hold a checkpoint that the run does not go on from.
  std::optional<SaveInterval> every; ///< Of the checkpoints in `checkpoint`.
  std::optional<int64_t> keep;       ///< How many of them stay: by default 2.
  int64_t rollback = 0;   ///< Steps to go back at least where numbers were not finite; 0: to the newest checkpoint.
  std::string meet, name; ///< Where members of open local SGD meet, and what this one is called; empty: not given.
  std::string change;     ///< Names with commas between; empty: not given.
  OutputPath metrics, tensorboard, summary, dumpGrads, dumpLogits, dumpRouting, trace;
  std::string routing;               ///< The file that choices of experts come from; empty: not given.
  std::optional<int64_t> stepsGiven; ///< --steps
  /// Step at which the run ends, counted from the first step of training; of an evaluation its batches.
  int64_t steps = 100;
  uint64_t seed = 0;
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  int64_t lrWarmup = 0;           ///< Steps over which the rate rises linearly to `lr`.
  std::string lrDecay = "none";   ///< How it falls from there to `minLr`: "none", "linear" or "cosine".
  std::optional<int64_t> lrSteps; ///< The step at which it gets there. Default: that of the checkpoint, else `steps`.
  double minLr = 0;
  double clip = std::numeric_limits<double>::infinity();
  std::optional<double> skipSpikes;  ///< Standard deviations above the mean norm from which on a step is skipped.
  int64_t checkReplicas = 0;         ///< Every so many steps; 0: never.
  int64_t snapshot = 0;              ///< Steps from one copy of the state in memory to the next; 0: there are none.
  std::optional<int64_t> skipMost;   ///< As mostSkipped says.
  std::optional<double> weightDecay; ///< Default: 1e-2 for AdamW, 0 for SGD.

  /// The learning rate of step `step`, counted from 0. It depends on the flags and the step alone, so a run that goes
  /// on from a checkpoint continues the curve.
  double rateAt(int64_t step) const;

  /// How many steps in a row may be skipped.
  int64_t mostSkipped() const { return skipMost.value_or(skipSpikes ? 10 : 0); }

  /// Whether --change names this flag (without "--") or part of a trajectory.
  bool mayChange(const std::string &name) const;
};

/// A flag as messages and files show it: its name without "--", and what was given or is the default.
using FlagValue = std::pair<std::string, std::string>;

/// The flags that the numbers of training depend on, one by one. Whether those are the same that a checkpoint was made
/// with, and on all ranks, is compared by these texts.
std::vector<FlagValue> trajectoryFlags(const Options &options);

/// The flags that all ranks must be given alike for other reasons: how long the run is, and what ranks do together.
std::vector<FlagValue> sharedFlags(const Options &options);

/// Warns that the learning rate ends at 0 before the last step, so that steps change nothing. `goesOn`: the run goes on
/// from a checkpoint.
void warnOfEndedCurve(const Options &options, int64_t firstStep, bool goesOn);

/// What the run writes, by flag.
std::vector<NamedPath> outputsOf(const Options &options);

/// Reads the flags, as "--flag value" or "--flag=value". Throws PCRT_USAGE naming the flag and what it takes.
Options parseOptions(int argc, char **argv);

/// What --help prints.
extern const char *const helpText;

} // namespace pcrt

#endif // PCRT_DATA_OPTIONS_H
