//===- AdapterConfig.cpp - The adapter and the base of a checkpoint -------===//
// Bases are compared by the sums of their tensors as f32, so a base may be stored in other files or dtypes.
//===----------------------------------------------------------------------===//
#include "checkpoint/AdapterConfig.h"
#include "base/Failure.h"

using namespace pcrt;

std::string pcrt::adapterConfig(const Program &program, const Trajectory &trajectory) {
  Json config = program.adapter;
  if (!trajectory.baseFrom.empty())
    config["base_model_name_or_path"] = trajectory.baseFrom;
  return config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void pcrt::checkAdapterConfig(const Program &program, const std::string &directory) {
  const Json config = readAdapterSettings(directory);
  for (const char *key : {"r", "lora_alpha"})
    if (config.at(key) != program.adapter.at(key))
      fail(PCRT_USAGE, directory + "/" + adapterConfigFile + ": '" + key + "' is " + config.at(key).dump() +
                           ", but the program was compiled for " + program.adapter.at(key).dump() +
                           "; compile the program with this adapter's values in --lora");
}

void pcrt::checkSameBase(const Trajectory &before, const std::map<std::string, std::string> &base,
                         const std::string &directory, const std::string &weights) {
  if (base.empty() && !before.base.empty())
    fail(PCRT_USAGE, directory + " is an adapter of the model in " + before.baseFrom + "; give that model with --init");
  if (before.base.empty() && !base.empty())
    fail(PCRT_USAGE,
         directory + " is an adapter of a model whose parameters were drawn with --seed, not of " + weights);
  for (const auto &[name, sum] : base) {
    auto found = before.base.find(name);
    std::string then = found == before.base.end() ? "" : found->second;
    if (then != sum)
      fail(PCRT_USAGE, directory + " is an adapter of another model than " + weights + ": tensor '" + name +
                           "' has checksum " + sum + ", not " + then + " as in " + before.baseFrom);
  }
}
