//===- PeakRate.h - The most that this machine's processors have done -----===//
// pc-calibrate leaves in the user's cache what products reach on this machine. How much of that a step reaches is known
// only where it was measured here.
//===----------------------------------------------------------------------===//
#ifndef PCRT_METRICS_PEAKRATE_H
#define PCRT_METRICS_PEAKRATE_H

#include "base/Program.h"

#include <string>

namespace pcrt {

/// Where pc-calibrate leaves what it measured; empty: neither XDG_CACHE_HOME nor HOME is set.
std::string calibratedMachine();

/// "model name" of /proc/cpuinfo.
std::string cpuName();

/// Floating point operations a second; 0: not known.
struct PeakRate {
  double f32 = 0, bf16 = 0;
};

/// The peak of `threads` cores, as pc-calibrate has measured them on a processor of the same name.
PeakRate calibratedPeak(int threads);

/// Seconds in which `ranks` ranks that worked at their peak would do what the model needs of a step (the report's
/// model_flops); 0: not known.
double secondsAtPeak(const Json &report, int ranks, const PeakRate &peak);

} // namespace pcrt

#endif // PCRT_METRICS_PEAKRATE_H
