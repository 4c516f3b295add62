//===- NoCpuDevice.cpp - No steps on the CPU ------------------------------===//
// Replaces CpuDevice.cpp in programs for other devices, which then need no oneDNN on their machines.
//===----------------------------------------------------------------------===//
#include "base/Failure.h"
#include "cpu/CpuDevice.h"

using namespace pcrt;

std::unique_ptr<Device> pcrt::openCpuDevice(const Program &, const Bf16Choice &) {
  fail(PCRT_INTERNAL, "this runtime was built without CPU kernels; compile the program with --target=cuda");
}

void Bf16Uses::add(const pcrt_program &) {}
Bf16Measurement pcrt::measureBf16(const Bf16Uses &) { return {}; }
Bf16Choice pcrt::chooseBf16(const std::vector<Bf16Measurement> &) { return {}; }
Bf16Choice pcrt::agreeOnBf16(const Bf16Uses &, Comm &) { return {}; }
Json pcrt::describe(const Bf16Choice &) { return Json::object(); }
