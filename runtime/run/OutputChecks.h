//===- OutputChecks.h - Protects files from a run's outputs ---------------===//
// A run checks its outputs before it opens anything for writing.
//===----------------------------------------------------------------------===//
#ifndef PCRT_RUN_OUTPUTCHECKS_H
#define PCRT_RUN_OUTPUTCHECKS_H

#include "checkpoint/Trajectory.h"
#include "data/Samples.h"

namespace pcrt {

/// Throws PCRT_USAGE if an output of the run is a file that it reads, or two outputs are one file. `weights` are the
/// files or directories from which parameters are read; empty paths are ignored.
void checkOutputs(const Options &options, const SampleData &data, const std::vector<std::string> &weights);

/// Throws PCRT_USAGE if --save, without --overwrite, names a checkpoint that this run may not replace. A run that
/// continues `before` may replace a checkpoint of the same data whose step is not later, `before` included, or that was
/// saved because numbers were not finite. A run that starts from the beginning (`before` is null) may replace none.
void checkReplaces(const Options &options, const Trajectory *before);

} // namespace pcrt

#endif // PCRT_RUN_OUTPUTCHECKS_H
