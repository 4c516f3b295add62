//===- AdapterSettings.h - PEFT's adapter_config.json ---------------------===//
// Runs and pc-merge read adapters that PEFT has saved. Settings that change what an adapter computes, and that are not
// supported, are refused by name. All others are about training or generation in PEFT.
//===----------------------------------------------------------------------===//
#ifndef PCRT_BASE_ADAPTERSETTINGS_H
#define PCRT_BASE_ADAPTERSETTINGS_H

#include <nlohmann/json.hpp>
#include <string>

namespace pcrt {

constexpr const char *adapterConfigFile = "adapter_config.json", *adapterFile = "adapter_model.safetensors";

/// The settings in DIRECTORY/adapter_config.json: "r" and "lora_alpha" are positive numbers, "r" a whole one. Throws
/// PCRT_BAD_DATA, naming the key.
nlohmann::ordered_json readAdapterSettings(const std::string &directory);

} // namespace pcrt

#endif // PCRT_BASE_ADAPTERSETTINGS_H
