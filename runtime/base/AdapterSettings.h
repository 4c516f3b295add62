//===- AdapterSettings.h - PEFT's adapter_config.json ---------------------===//
// Runs and pc-merge read adapters that PEFT has saved. A setting that changes what an adapter computes is refused by
// name if it is not supported. All other settings only matter to PEFT.
//===----------------------------------------------------------------------===//
#ifndef PCRT_BASE_ADAPTERSETTINGS_H
#define PCRT_BASE_ADAPTERSETTINGS_H

#include <nlohmann/json.hpp>
#include <string>

namespace pcrt {

constexpr const char *adapterConfigFile = "adapter_config.json", *adapterFile = "adapter_model.safetensors";

/// Returns the settings in DIRECTORY/adapter_config.json. "r" is a positive integer, "lora_alpha" a positive number.
/// Throws PCRT_BAD_DATA with a message that names the key.
nlohmann::ordered_json readAdapterSettings(const std::string &directory);

} // namespace pcrt

#endif // PCRT_BASE_ADAPTERSETTINGS_H
