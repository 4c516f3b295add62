//===- Safetensors.cpp - Reading safetensors files ------------------------===//
// Opens single files and sharded checkpoints (format: github.com/huggingface/safetensors). A header is refused if it is
// truncated or nested, if it names a tensor twice, if sizes do not fit the data, or if the data of two tensors overlap.
// The messages name the file and the tensor.
//===----------------------------------------------------------------------===//
#include "base/Safetensors.h"
#include "base/Failure.h"
#include "base/Types.h"
#include "pcrt/weights.h"

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
int64_t storedBytes(const std::string &dtype) {
  static const std::map<std::string, int64_t> sizes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
      {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"F64", 8},     {"I64", 8}, {"U64", 8}};
  auto found = sizes.find(dtype);
  return found == sizes.end() ? 0 : found->second;
}

/// Scans a header before it is parsed into a tree: finds nesting that the format does not have, and duplicate names. (A
/// filter given to Json::parse needs time that is quadratic in the number of tensors.)
struct HeaderScan : nlohmann::json_sax<Json> {
  std::set<std::string> names;
  std::string twice, error;
  int depth = 0, deepest = 0;

  bool open() { return (deepest = std::max(deepest, ++depth)) < 8; }
  bool close() { return --depth >= 0; }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string &name) override {
    if (depth == 1 && !names.insert(name).second)
      twice = name;
    return true;
  }
  bool parse_error(size_t, const std::string &, const Json::exception &what) override {
    error = what.what();
    return false;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string &) override { return true; }
  bool string(std::string &) override { return true; }
  bool binary(Json::binary_t &) override { return true; }
};

/// Checks one file's header and lists its tensors.
class HeaderReader {
public:
  explicit HeaderReader(const InputFile &file) : file(file) {}

  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;

  void read() {
    if (std::string why = whyNoContents(file.read(0, std::min<int64_t>(file.size(), 64))); !why.empty())
      wrong("it " + why);
    if (file.size() < 8)
      wrong("the file is too short for a safetensors header (" + std::to_string(file.size()) + " bytes)");
    uint64_t headerBytes;
    file.read(0, 8, &headerBytes);
    constexpr uint64_t largest = 100'000'000; // the limit of the format's own reader
    if (headerBytes > largest || headerBytes > uint64_t(file.size() - 8))
      wrong("the header length " + std::to_string(headerBytes) + " is larger than the file (" +
            std::to_string(file.size()) + " bytes); it may be truncated, or not a safetensors file");
    data = 8 + int64_t(headerBytes);
    dataBytes = file.size() - data;
    Json header = parse(file.read(8, int64_t(headerBytes)));
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

  Json parse(const std::string &text) {
    HeaderScan scan;
    Json::sax_parse(text, &scan);
    if (!scan.error.empty())
      wrong("the header is not JSON: " + scan.error);
    Json header = scan.deepest < 8 ? Json::parse(text) : Json();
    if (!header.is_object())
      wrong("the header is not a JSON object of tensors");
    if (!scan.twice.empty())
      wrong(scan.twice, "the header names it twice");
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
      wrong(name, "it has no dtype");
    if (!entry.contains("shape") || !entry["shape"].is_array() ||
        !std::all_of(entry["shape"].begin(), entry["shape"].end(), isCount))
      wrong(name, "it has no shape of non-negative integers");
    if (!entry.contains("data_offsets") || !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2 ||
        !std::all_of(entry["data_offsets"].begin(), entry["data_offsets"].end(), isCount))
      wrong(name, "it has no data_offsets of two non-negative integers");
    StoredTensor tensor;
    tensor.dtype = entry["dtype"].get<std::string>();
    tensor.shape = entry["shape"].get<Dims>();
    tensor.file = file.path();
    int64_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    if (begin > end || end > dataBytes)
      wrong(name, "data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) + "] lie outside the file's " +
                      std::to_string(dataBytes) + " bytes of data; it may be truncated");
    int64_t bytes = storedBytes(tensor.dtype);
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
    tensor.from = &file;
    tensor.offset = data + begin;
    tensor.bytes = end - begin;
    tensors.emplace(name, std::move(tensor));
  }

  void checkOverlaps() {
    std::vector<std::pair<const StoredTensor *, const std::string *>> order;
    for (auto &[name, tensor] : tensors)
      if (tensor.bytes > 0)
        order.push_back({&tensor, &name});
    std::sort(order.begin(), order.end(), [](auto &a, auto &b) { return a.first->offset < b.first->offset; });
    for (size_t i = 1; i < order.size(); ++i)
      if (order[i - 1].first->offset + order[i - 1].first->bytes > order[i].first->offset)
        wrong("the data of tensors '" + *order[i - 1].second + "' and '" + *order[i].second + "' overlap");
  }

  const InputFile &file;
  int64_t data = 0, dataBytes = 0; ///< The first byte and the size of the data.
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
  std::string text = InputFile(path).text();
  if (std::string why = whyNoContents(text); !why.empty())
    fail(PCRT_BAD_DATA, path + ": it " + why);
  Json index;
  try {
    index = Json::parse(text);
  } catch (const Json::exception &error) {
    fail(PCRT_BAD_DATA, path + " is not valid JSON: " + error.what());
  }
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    fail(PCRT_BAD_DATA, path + " has no weight_map");
  std::set<std::string> shards;
  for (auto &[tensor, shard] : index["weight_map"].items()) {
    if (!shard.is_string() || shard.get<std::string>().find('/') != std::string::npos)
      fail(PCRT_BAD_DATA, path + ": tensor '" + tensor + "' is not in any file of this directory");
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
  if (isThere(single)) {
    result.addFile(single);
  } else if (isThere(index)) {
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
      fail(PCRT_BAD_DATA, path + ": tensor '" + name + "' is in " + all[name].file + " as well");
  meta = std::move(reader.metadata);
}

const StoredTensor *Safetensors::find(const std::string &name) const {
  auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

const StoredTensor *Safetensors::findModelTensor(const std::string &name) const {
  return pcrt::findModelTensor(name, [&](const std::string &name) { return find(name); });
}

bool pcrt::isFloatDtype(const std::string &dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16" || dtype == "F64";
}

FloatReader::FloatReader(const StoredTensor &tensor) : tensor(tensor), width(storedBytes(tensor.dtype)) {}

/// Converts elements, which need not be aligned, to f32.
static void convert(const std::string &dtype, const unsigned char *raw, int64_t count, float *out) {
  auto each = [&](auto zero, auto toFloat) {
    for (int64_t i = 0; i < count; ++i) {
      auto value = zero;
      memcpy(&value, raw + i * int64_t(sizeof value), sizeof value);
      out[i] = toFloat(value);
    }
  };
  if (dtype == "F32")
    memcpy(out, raw, size_t(count) * 4);
  else if (dtype == "BF16")
    each(uint16_t(), bf16ToFloat);
  else if (dtype == "F16")
    each(uint16_t(), halfToFloat);
  else if (dtype == "I8")
    each(int8_t(), [](int8_t value) { return float(value); });
  else
    each(double(), [](double value) { return float(value); });
}

void FloatReader::read(int64_t first, int64_t count, float *out) {
  constexpr int64_t most = sizeof window;
  if (tensor.dtype == "F32" && 4 * count > most / 2)
    return tensor.from->read(tensor.offset + 4 * first, 4 * count, out);
  while (count > 0) {
    int64_t at = first * width;
    int64_t wanted = std::min(count * width, most);
    if (at < start || at + wanted > start + bytes) {
      bytes = 0; // the window is empty if the read throws
      int64_t here = std::min(most, tensor.bytes - at);
      tensor.from->read(tensor.offset + at, here, window);
      start = at;
      bytes = here;
    }
    int64_t now = wanted / width;
    convert(tensor.dtype, window + (at - start), now, out);
    first += now;
    count -= now;
    out += now;
  }
}
