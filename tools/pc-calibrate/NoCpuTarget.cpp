//===- NoCpuTarget.cpp - No calls on a CPU --------------------------------===//
// In the place of CpuTarget.cpp where only devices are measured: then there is no need of oneDNN.
//===----------------------------------------------------------------------===//
#include "Target.h"
#include "base/Failure.h"

std::unique_ptr<pc_calibrate::Target> pc_calibrate::makeCpuTarget(pcrt::Comm &) {
  pcrt::fail(PCRT_USAGE, "this program measures devices alone; it needs --target=cuda");
}
