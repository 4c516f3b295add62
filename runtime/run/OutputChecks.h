//===- OutputChecks.h - What a run must not write over --------------------===//
#ifndef PCRT_RUN_OUTPUTCHECKS_H
#define PCRT_RUN_OUTPUTCHECKS_H

#include "checkpoint/Trajectory.h"
#include "data/Data.h"

namespace pcrt {

/// Throws PCRT_USAGE if an output of the run is a file that it reads, or two outputs are one file. `weights`: the file
/// or directory that the parameters come from; empty: none.
void checkOutputs(const Options &options, const TokenData &data, const std::string &weights);

/// Throws PCRT_USAGE if --save, without --overwrite, would replace a checkpoint of another run. A run that goes on from
/// `before` may replace that checkpoint, an earlier one of the same data, and one where numbers were not finite. A run
/// that begins anew (`before` is null) may replace none.
void checkReplaces(const Options &options, const Trajectory *before);

} // namespace pcrt

#endif // PCRT_RUN_OUTPUTCHECKS_H
