//===- Tensors.cpp - Reads safetensors files for pc-compare ---------------===//
// A file is 8 bytes of header length, a JSON header and the data; only F32 is accepted.
//===----------------------------------------------------------------------===//
#include "Tensors.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

void die(ExitCode code, const std::string &message) {
  fprintf(stderr, "error: %s\n", message.c_str());
  exit(code);
}

std::string readFile(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  if (!in)
    die(Unreadable, "cannot read " + path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::map<std::string, FileTensor> readTensors(const std::string &path) {
  std::string bytes = readFile(path);
  uint64_t headerBytes = 0;
  if (bytes.size() < 8)
    die(Unreadable, path + " is too short for a safetensors file");
  memcpy(&headerBytes, bytes.data(), 8);
  if (headerBytes > bytes.size() - 8)
    die(Unreadable, path + " has a header that is longer than the file");
  auto header = nlohmann::json::parse(bytes.substr(8, headerBytes), nullptr, /*allow_exceptions=*/false);
  if (!header.is_object())
    die(Unreadable, path + " has a header that is not a JSON object");
  std::map<std::string, FileTensor> tensors;
  for (auto &[name, entry] : header.items()) {
    if (name == "__metadata__")
      continue;
    if (entry.at("dtype") != "F32")
      die(Unreadable, path + ": " + name + " is not F32");
    FileTensor &tensor = tensors[name];
    tensor.shape = entry.at("shape").get<std::vector<int64_t>>();
    size_t elements = 1;
    for (int64_t size : tensor.shape)
      elements *= size;
    size_t begin = entry.at("data_offsets")[0], end = entry.at("data_offsets")[1];
    if (end - begin != 4 * elements || 8 + headerBytes + end > bytes.size())
      die(Unreadable, path + ": " + name + " has wrong offsets");
    tensor.values.resize(elements);
    memcpy(tensor.values.data(), bytes.data() + 8 + headerBytes + begin, 4 * elements);
  }
  return tensors;
}
