//===- NoCpuTarget.cpp - No calls on a CPU --------------------------------===//
// Replaces CpuTarget.cpp in builds only for devices, which then need no oneDNN.
//===----------------------------------------------------------------------===//
#include "Target.h"
#include "base/Failure.h"

std::unique_ptr<pc_calibrate::Target> pc_calibrate::makeCpuTarget(pcrt::Comm &, const std::string &) {
  pcrt::fail(PCRT_USAGE, "this pc-calibrate can measure only CUDA devices; add --target=cuda");
}
