//===- PeakRate.cpp - The measured peak rate of this machine --------------===//
// Reads the machine file that pc-calibrate writes. Any problem with it means that the rate is unknown.
//===----------------------------------------------------------------------===//
#include "metrics/PeakRate.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

using namespace pcrt;

std::string pcrt::calibratedMachine() {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (cache && cache[0])
    return std::string(cache) + "/pc/here.json";
  return home && home[0] ? std::string(home) + "/.cache/pc/here.json" : "";
}

std::string pcrt::cpuName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.compare(0, 10, "model name") == 0)
      return line.substr(std::min(line.size(), line.find(':') + 2));
  return "CPU";
}

static double numberOf(const Json &object, const char *key) {
  return object.contains(key) && object[key].is_number() ? object[key].get<double>() : 0;
}

PeakRate pcrt::calibratedPeak(int threads) {
  std::ifstream file(calibratedMachine());
  Json machine = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!machine.is_object() || !machine.contains("measured") || !machine["measured"].is_object())
    return {};
  const Json &measured = machine["measured"];
  double cores = numberOf(measured, "threads");
  if (cores < 1 || !measured.contains("processor") || measured["processor"] != cpuName())
    return {};
  return {numberOf(machine, "f32_flops") * threads / cores, numberOf(machine, "bf16_flops") * threads / cores};
}

double pcrt::secondsAtPeak(const Json &report, int ranks, const PeakRate &peak) {
  if (!report.is_object() || !report.contains("model_flops") || !report["model_flops"].is_object())
    return 0;
  double f32 = numberOf(report["model_flops"], "f32"), bf16 = numberOf(report["model_flops"], "bf16");
  if ((f32 > 0 && peak.f32 <= 0) || (bf16 > 0 && peak.bf16 <= 0))
    return 0;
  return ((f32 > 0 ? f32 / peak.f32 : 0) + (bf16 > 0 ? bf16 / peak.bf16 : 0)) / ranks;
}
