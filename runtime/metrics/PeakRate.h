//===- PeakRate.h - The measured peak rate of this machine ----------------===//
// pc-calibrate stores the rates of large products on this machine in the user's cache. Without that measurement, the
// utilization of a step is unknown.
//===----------------------------------------------------------------------===//
#ifndef PCRT_METRICS_PEAKRATE_H
#define PCRT_METRICS_PEAKRATE_H

#include "base/Program.h"

#include <string>

namespace pcrt {

/// The file in which pc-calibrate stores its measurements; empty: neither XDG_CACHE_HOME nor HOME is set.
std::string calibratedMachine();

/// The text of "model name" in /proc/cpuinfo.
std::string cpuName();

/// Floating point operations per second; 0: unknown.
struct PeakRate {
  double f32 = 0, bf16 = 0;
};

/// The peak of `threads` cores, if pc-calibrate has measured it on a processor of the same name.
PeakRate calibratedPeak(int threads);

/// The seconds that `ranks` ranks at their peak would need for the model's work in a step (the report's model_flops);
/// 0: unknown.
double secondsAtPeak(const Json &report, int ranks, const PeakRate &peak);

} // namespace pcrt

#endif // PCRT_METRICS_PEAKRATE_H
