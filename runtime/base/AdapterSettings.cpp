//===- AdapterSettings.cpp - PEFT's adapter_config.json -------------------===//
// The keys are those of PEFT's LoraConfig.
//===----------------------------------------------------------------------===//
#include "base/AdapterSettings.h"
#include "base/Failure.h"
#include "base/InputFile.h"
#include "pcrt/weights.h"

using namespace pcrt;
using Json = nlohmann::ordered_json;

Json pcrt::readAdapterSettings(const std::string &directory) {
  std::string path = directory + "/" + adapterConfigFile;
  if (!isThere(path))
    fail(PCRT_BAD_DATA, directory + " is not an adapter: it has no " + adapterConfigFile);
  Json config = Json::parse(InputFile(path).text(), nullptr, /*allow_exceptions=*/false);
  if (!config.is_object())
    fail(PCRT_BAD_DATA, path + " is not a JSON object");
  auto isUnset = [](const Json &value) {
    return value.is_null() || value == false || value == "none" || (value.is_structured() && value.empty());
  };
  for (const char *key : {"bias", "use_rslora", "use_dora", "use_qalora", "lora_bias", "rank_pattern", "alpha_pattern",
                          "modules_to_save", "trainable_token_indices", "target_parameters"})
    if (const Json value = config.value(key, Json()); !isUnset(value))
      fail(PCRT_BAD_DATA, path + ": '" + key + "' is " + value.dump() + ", which is not supported");
  const Json type = config.value("peft_type", Json()), rank = config.value("r", Json()),
             alpha = config.value("lora_alpha", Json());
  if (type != "LORA")
    fail(PCRT_BAD_DATA, path + ": 'peft_type' is " + type.dump() + ", not \"LORA\"");
  if (!rank.is_number_integer() || rank < 1)
    fail(PCRT_BAD_DATA, path + ": 'r' is " + rank.dump() + ", not a rank");
  if (!alpha.is_number() || alpha <= 0)
    fail(PCRT_BAD_DATA, path + ": 'lora_alpha' is " + alpha.dump() + ", not a positive number");
  return config;
}
