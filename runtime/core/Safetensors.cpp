//===- Safetensors.cpp - reading safetensors files ------------------------===//
#include "core/Safetensors.h"
#include "core/Failure.h"
#include "device/PlainGemm.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

using namespace pcrt;
using Json = nlohmann::json;

namespace {

/// Bytes of an element, 0 for a dtype that the format does not have.
int64_t elementBytes(const std::string &dtype) {
  static const std::map<std::string, int64_t> sizes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
      {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"F64", 8},     {"I64", 8}, {"U64", 8}};
  auto found = sizes.find(dtype);
  return found == sizes.end() ? 0 : found->second;
}

/// Checks one file's header and lists its tensors.
class HeaderReader {
public:
  explicit HeaderReader(const MappedFile &file) : file(file) {}

  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;

  void read() {
    if (file.size() < 8)
      wrong("the file is too short for a safetensors header (" + std::to_string(file.size()) + " bytes)");
    uint64_t headerBytes;
    memcpy(&headerBytes, file.data(), 8);
    constexpr uint64_t largest = 100'000'000; // the limit of the format's own reader
    if (headerBytes > largest || headerBytes > uint64_t(file.size() - 8))
      wrong("the header length " + std::to_string(headerBytes) + " is larger than the file (" +
            std::to_string(file.size()) + " bytes)");
    data = file.data() + 8 + headerBytes;
    dataBytes = file.size() - 8 - int64_t(headerBytes);
    Json header = parse(file.data() + 8, file.data() + 8 + headerBytes);
    for (auto &[name, entry] : header.items()) {
      if (name == "__metadata__")
        readMetadata(entry);
      else
        readTensor(name, entry);
    }
    checkOverlaps();
  }

private:
  [[noreturn]] void wrong(const std::string &what) { fail(PCRT_BAD_DATA, file.path() + ": " + what); }
  [[noreturn]] void wrong(const std::string &tensor, const std::string &what) {
    wrong("tensor '" + tensor + "': " + what);
  }

  Json parse(const unsigned char *begin, const unsigned char *end) {
    std::set<std::string> names;
    std::string twice;
    int deepest = 0;
    auto callback = [&](int depth, Json::parse_event_t event, Json &value) {
      deepest = std::max(deepest, depth);
      if (event == Json::parse_event_t::key && depth == 1 && !names.insert(value.get<std::string>()).second)
        twice = value.get<std::string>();
      return depth < 8;
    };
    Json header;
    try {
      header = Json::parse(begin, end, callback);
    } catch (const Json::exception &error) {
      wrong(std::string("the header is not JSON: ") + error.what());
    }
    if (!header.is_object() || deepest >= 8)
      wrong("the header is not a JSON object of tensors");
    if (!twice.empty())
      wrong(twice, "the header names it twice");
    return header;
  }

  void readMetadata(const Json &entry) {
    if (!entry.is_object())
      wrong("__metadata__ is not an object");
    for (auto &[key, value] : entry.items()) {
      if (!value.is_string())
        wrong("__metadata__ '" + key + "' is not a string");
      metadata[key] = value.get<std::string>();
    }
  }

  void readTensor(const std::string &name, const Json &entry) {
    auto isCount = [](const Json &value) { return value.is_number_unsigned() && value <= uint64_t(INT64_MAX); };
    if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string())
      wrong(name, "no dtype");
    if (!entry.contains("shape") || !entry["shape"].is_array() ||
        !std::all_of(entry["shape"].begin(), entry["shape"].end(), isCount))
      wrong(name, "no shape of non-negative integers");
    if (!entry.contains("data_offsets") || !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2 ||
        !std::all_of(entry["data_offsets"].begin(), entry["data_offsets"].end(), isCount))
      wrong(name, "no data_offsets of two non-negative integers");
    StoredTensor tensor;
    tensor.dtype = entry["dtype"].get<std::string>();
    tensor.shape = entry["shape"].get<Dims>();
    tensor.file = file.path();
    int64_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    if (begin > end || end > dataBytes)
      wrong(name, "data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) + "] lie outside the file's " +
                      std::to_string(dataBytes) + " bytes of data; it may be truncated");
    int64_t bytes = elementBytes(tensor.dtype);
    if (!bytes)
      wrong(name, "unknown dtype '" + tensor.dtype + "'");
    if (tensor.shape.size() > size_t(kMaxRank))
      wrong(name, "it has " + std::to_string(tensor.shape.size()) + " dims");
    bool overflow = false;
    for (int64_t size : tensor.shape)
      overflow |= __builtin_mul_overflow(bytes, size, &bytes);
    if (overflow || bytes != end - begin)
      wrong(name, tensor.dtype + " " + describe(tensor.shape) + " does not fit its " + std::to_string(end - begin) +
                      " bytes");
    tensor.data = data + begin;
    tensor.bytes = end - begin;
    tensors.emplace(name, std::move(tensor));
  }

  void checkOverlaps() {
    std::vector<std::pair<const StoredTensor *, const std::string *>> order;
    for (auto &[name, tensor] : tensors)
      if (tensor.bytes > 0)
        order.push_back({&tensor, &name});
    std::sort(order.begin(), order.end(), [](auto &a, auto &b) { return a.first->data < b.first->data; });
    for (size_t i = 1; i < order.size(); ++i)
      if (order[i - 1].first->data + order[i - 1].first->bytes > order[i].first->data)
        wrong("the data of tensors '" + *order[i - 1].second + "' and '" + *order[i].second + "' overlap");
  }

  const MappedFile &file;
  const unsigned char *data = nullptr;
  int64_t dataBytes = 0;
};

float halfToFloat(uint16_t bits) {
  uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
  if (exponent == 31)
    return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  if (exponent)
    return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  float small = float(mantissa) * 0x1p-24f;
  return sign ? -small : small;
}

/// The shards that an index names.
std::set<std::string> shardsOf(const std::string &path) {
  MappedFile file(path);
  Json index;
  try {
    index = Json::parse(file.data(), file.data() + file.size());
  } catch (const Json::exception &error) {
    fail(PCRT_BAD_DATA, path + ": not JSON: " + error.what());
  }
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    fail(PCRT_BAD_DATA, path + ": no weight_map");
  std::set<std::string> shards;
  for (auto &[tensor, shard] : index["weight_map"].items()) {
    if (!shard.is_string() || shard.get<std::string>().find('/') != std::string::npos)
      fail(PCRT_BAD_DATA, path + ": tensor '" + tensor + "' is in no file of this directory");
    shards.insert(shard.get<std::string>());
  }
  return shards;
}

} // namespace

Safetensors Safetensors::open(const std::string &path) {
  namespace fs = std::filesystem;
  Safetensors result;
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    result.addFile(path);
    return result;
  }
  std::string single = path + "/model.safetensors", index = path + "/model.safetensors.index.json";
  if (fs::exists(single, ignored)) {
    result.addFile(single);
  } else if (fs::exists(index, ignored)) {
    for (const std::string &shard : shardsOf(index))
      result.addFile(path + "/" + shard);
  } else {
    fail(PCRT_BAD_DATA, path + " has neither model.safetensors nor model.safetensors.index.json");
  }
  return result;
}

void Safetensors::addFile(const std::string &path) {
  files.emplace_back(path);
  HeaderReader reader(files.back());
  reader.read();
  for (auto &[name, tensor] : reader.tensors)
    if (!all.emplace(name, tensor).second)
      fail(PCRT_BAD_DATA, path + ": tensor '" + name + "' is in " + all[name].file + ", too");
  meta = std::move(reader.metadata);
}

const StoredTensor *Safetensors::find(const std::string &name) const {
  auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

const StoredTensor *Safetensors::findModelTensor(const std::string &name) const {
  if (const StoredTensor *tensor = find(name))
    return tensor;
  for (const std::string prefix : {"transformer.", "model."}) {
    if (name.compare(0, prefix.size(), prefix) == 0) {
      if (const StoredTensor *tensor = find(name.substr(prefix.size())))
        return tensor;
    } else if (const StoredTensor *tensor = find(prefix + name)) {
      return tensor;
    }
  }
  return nullptr;
}

bool pcrt::isFloatDtype(const std::string &dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16" || dtype == "F64";
}

void pcrt::loadFloats(const StoredTensor &tensor, int64_t first, int64_t count, float *out) {
  // Data in files is aligned to nothing: memcpy element by element.
  auto convert = [&](auto zero, auto toFloat) {
    const unsigned char *from = tensor.data + first * int64_t(sizeof zero);
    for (int64_t i = 0; i < count; ++i) {
      auto value = zero;
      memcpy(&value, from + i * sizeof value, sizeof value);
      out[i] = toFloat(value);
    }
  };
  if (tensor.dtype == "F32")
    memcpy(out, tensor.data + first * 4, count * 4);
  else if (tensor.dtype == "BF16")
    convert(uint16_t(), bf16ToFloat);
  else if (tensor.dtype == "F16")
    convert(uint16_t(), halfToFloat);
  else
    convert(double(), [](double value) { return float(value); });
}
