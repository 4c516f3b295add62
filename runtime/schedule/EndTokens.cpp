//===- EndTokens.cpp - The tokens that end an answer ----------------------===//
// transformers reads the same files in the same order.
//===----------------------------------------------------------------------===//
#include "schedule/EndTokens.h"
#include "base/Failure.h"
#include "base/InputFile.h"

#include <filesystem>
#include <nlohmann/json.hpp>

using namespace pcrt;
using Json = nlohmann::json;

/// The value of `eos_token_id` in a file; null if there is none. In the configuration of a model with several parts,
/// the value is in `text_config`.
static Json endOf(const std::string &path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return nullptr;
  Json json = Json::parse(InputFile(path).text(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    fail(PCRT_BAD_DATA, path + " is not a JSON object");
  for (const Json &one : {json, json.value("text_config", Json())})
    if (one.is_object() && one.contains("eos_token_id") && !one["eos_token_id"].is_null())
      return one["eos_token_id"];
  return nullptr;
}

std::vector<int32_t> pcrt::readEndTokens(const std::string &directory, int32_t vocabulary) {
  std::vector<int32_t> tokens;
  for (const char *name : {"generation_config.json", "config.json"}) {
    std::string path = std::filesystem::path(directory) / name;
    Json ids = endOf(path);
    for (const Json &id : ids.is_array() ? ids : ids.is_null() ? Json::array() : Json::array({ids})) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() >= uint64_t(vocabulary))
        fail(PCRT_BAD_DATA, path + ": eos_token_id is not an id below " + std::to_string(vocabulary));
      tokens.push_back(id.get<int32_t>());
    }
    if (!tokens.empty())
      break;
  }
  return tokens;
}
