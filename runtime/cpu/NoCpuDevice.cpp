//===- NoCpuDevice.cpp - no steps on the CPU ------------------------------===//
//
// In the place of CpuDevice.cpp in programs for other devices, which then need
// no oneDNN where they run.
//
//===----------------------------------------------------------------------===//
#include "base/Failure.h"
#include "cpu/CpuDevice.h"

std::unique_ptr<pcrt::Device> pcrt::openCpuDevice(const Program &) {
  fail(PCRT_INTERNAL, "this program is for another device");
}
