//===- Trajectory.cpp - The record of how a checkpoint was made -----------===//
// Writes and reads trajectory.json, whose last key is a sum of all others, and compares trajectories and models. A
// model's config.json is compared key by key with the values that the program's description allows (configMeans),
// because configs of one model differ in keys that do not matter.
//===----------------------------------------------------------------------===//
#include "checkpoint/Trajectory.h"
#include "base/Failure.h"
#include "base/InputFile.h"
#include "base/TensorSum.h"

#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

using namespace pcrt;

constexpr int64_t formatVersion = 1;
constexpr int64_t MiB = int64_t(1) << 20;

FileIdentity FileIdentity::of(const std::string &path) {
  InputFile file(path);
  int64_t bytes = file.size(), part = std::min(bytes, MiB);
  TensorSum sum;
  for (int64_t offset : {int64_t(0), bytes - part})
    sum += sumOfBytes(file.read(offset, part).data(), part);
  return {bytes, sum.text()};
}

FileIdentity pcrt::identityOf(const std::vector<DataIdentity> &data) {
  FileIdentity all;
  std::string sums;
  for (const DataIdentity &file : data) {
    all.bytes += file.identity.bytes;
    sums += file.identity.sum;
  }
  all.sum = sumOfBytes(sums.data(), int64_t(sums.size())).text();
  return all;
}

FileIdentity pcrt::identityOfWeights(const std::string &path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error))
    return FileIdentity::of(path);
  std::map<std::string, FileIdentity> files; // sorted, so that the order is the same on all machines
  for (const std::filesystem::directory_entry &entry : std::filesystem::directory_iterator(path, error))
    if (entry.path().extension() == ".safetensors" || entry.path().filename() == "config.json")
      files[entry.path().filename()] = FileIdentity::of(entry.path());
  FileIdentity all;
  std::string sums;
  for (auto &[name, file] : files) {
    all.bytes += file.bytes;
    sums += name + file.sum;
  }
  all.sum = sumOfBytes(sums.data(), int64_t(sums.size())).text();
  return all;
}

//===----------------------------------------------------------------------===//
// The file
//===----------------------------------------------------------------------===//

/// The JSON value of a flag: a number if it is one, and text otherwise.
static Json valueOf(const std::string &text) {
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return value.is_number() ? value : Json(text);
}

/// Prints JSON. Names of files need not be UTF-8: invalid bytes become U+FFFD.
static std::string dump(const Json &json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

static Json toJson(const DataIdentity &data) {
  return {{"file", data.file},
          {"bytes", data.identity.bytes},
          {"tokens", data.tokens},
          {"sum", data.identity.sum},
          {"weight", data.weight}};
}

std::string Trajectory::text() const {
  Json json = {{"format", formatVersion},      {"step", step},   {"samples", samples},
               {"tokens", samples * sequence}, {"batch", batch}, {"sequence", sequence},
               {"optimizer", optimizer},       {"plan", plan},   {"program", program}};
  if (replicas > 1 || rounds != "none")
    json["local_sgd"] = {{"rounds", rounds}, {"replicas", replicas}};
  if (groups != "none")
    json["groups"] = groups;
  if (!base.empty())
    json["base"] = {{"from", baseFrom}, {"tensors", base}};
  for (const FlagValue &flag : flags)
    json["flags"][flag.first] = valueOf(flag.second);
  json["data"] = Json::array();
  for (const DataIdentity &file : data)
    json["data"].push_back(toJson(file));
  json["skipped"] = Json::array();
  for (const SampleRange &range : skipped)
    json["skipped"].push_back({range.begin, range.end});
  if (ended)
    json["ended"] = {{"why", ended->why}, {"samples", ended->samples}};
  json["norms"] = {{"last", norms.norms}, {"skipped", norms.skipped}};
  for (auto &[name, bytes] : files) {
    Json &file = json["files"][name] = {{"bytes", bytes}};
    auto found = tensors.find(name);
    if (found == tensors.end())
      continue;
    file["tensors"] = Json::object();
    for (auto &[tensor, record] : found->second)
      file["tensors"][tensor] = {{"dtype", record.dtype}, {"shape", record.shape}, {"sum", record.sum}};
  }
  std::string body = dump(json);
  json["sum"] = sumOfBytes(body.data(), int64_t(body.size())).text();
  return dump(json, 1) + "\n";
}

/// The trajectory in `json`. Throws Json::exception if a key is missing or has another type.
static Trajectory parse(const Json &json) {
  Trajectory result;
  result.step = json.at("step");
  result.samples = json.at("samples");
  result.batch = json.at("batch");
  result.sequence = json.at("sequence");
  result.optimizer = json.at("optimizer");
  result.plan = json.at("plan");
  result.program = json.at("program");
  for (auto &[name, value] : json.at("flags").items())
    result.flags.push_back({name, value.is_string() ? value.get<std::string>() : value.dump()});
  for (const Json &file : json.at("data"))
    result.data.push_back({file.at("file"), file.at("tokens"), {file.at("bytes"), file.at("sum")}, file.at("weight")});
  if (const Json norms = json.value("norms", Json()); !norms.is_null())
    result.norms = {norms.at("last"), norms.at("skipped")};
  result.groups = json.value("groups", result.groups);
  if (const Json base = json.value("base", Json()); !base.is_null()) {
    result.baseFrom = base.at("from");
    result.base = base.at("tensors").get<std::map<std::string, std::string>>();
  }
  if (const Json local = json.value("local_sgd", Json()); !local.is_null()) {
    result.rounds = local.at("rounds");
    result.replicas = local.at("replicas");
  }
  for (const Json &range : json.value("skipped", Json::array()))
    result.skipped.push_back({range.at(0), range.at(1)});
  if (const Json ended = json.value("ended", Json()); !ended.is_null())
    result.ended = NonFiniteEnd{ended.at("why"), ended.at("samples")};
  for (auto &[name, file] : json.at("files").items()) {
    result.files[name] = file.at("bytes");
    const Json tensors = file.value("tensors", Json::object());
    for (auto &[tensor, record] : tensors.items())
      result.tensors[name][tensor] = {record.at("shape").get<Dims>(), record.at("sum").get<std::string>(),
                                      record.value("dtype", "F32")};
  }
  return result;
}

Trajectory Trajectory::read(const std::string &directory) {
  std::string path = directory + "/" + trajectoryName;
  std::error_code ignored;
  if (std::filesystem::is_directory(directory, ignored) && !std::filesystem::exists(path, ignored))
    fail(PCRT_BAD_DATA, directory + " is not a checkpoint: it has no " + trajectoryName +
                            "; to start from its weights only, use --init " + directory);
  std::string text = InputFile(path).text();
  try {
    Json json = Json::parse(text);
    std::string sum = json.at("sum");
    json.erase("sum");
    std::string body = dump(json);
    if (sumOfBytes(body.data(), int64_t(body.size())).text() != sum)
      fail(PCRT_BAD_DATA, path + " is damaged: its checksum does not match");
    if (int64_t format = json.at("format"); format != formatVersion)
      fail(PCRT_BAD_DATA, path + ": format " + std::to_string(format) +
                              " is not supported by this program, which needs format " + std::to_string(formatVersion));
    Trajectory result = parse(json);
    if (result.step < 0 || result.samples < 0 || result.batch < 1 || result.sequence < 1)
      fail(PCRT_BAD_DATA, path + ": step, samples, batch or sequence is out of range");
    return result;
  } catch (const Json::exception &error) {
    fail(PCRT_BAD_DATA, path + " is damaged: " + error.what());
  }
}

void pcrt::writeSynced(const std::string &path, const std::string &text) {
  FILE *file = fopen(path.c_str(), "we");
  bool good =
      file && fwrite(text.data(), 1, text.size(), file) == text.size() && fflush(file) == 0 && fsync(fileno(file)) == 0;
  std::string message = withErrno("cannot write " + path);
  if (file && fclose(file) != 0)
    good = false;
  if (!good)
    fail(PCRT_RESOURCE, message);
}

void Trajectory::replaceIn(const std::string &directory, const std::string &temporary) const {
  writeSynced(temporary, text());
  if (rename(temporary.c_str(), (directory + "/" + trajectoryName).c_str()) != 0)
    fail(PCRT_RESOURCE, withErrno("cannot write " + directory + "/" + trajectoryName));
  int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return;
  fsync(fd);
  close(fd);
}

//===----------------------------------------------------------------------===//
// Compares trajectories and models
//===----------------------------------------------------------------------===//

static bool sameData(const std::vector<DataIdentity> &a, const std::vector<DataIdentity> &b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const DataIdentity &x, const DataIdentity &y) {
    return x.tokens == y.tokens && x.identity.bytes == y.identity.bytes && x.identity.sum == y.identity.sum &&
           x.weight == y.weight;
  });
}

static std::string showData(const std::vector<DataIdentity> &data) {
  std::string text;
  for (const DataIdentity &file : data)
    text += (text.empty() ? "" : ", ") + file.file + " (" + std::to_string(file.tokens) + " tokens, checksum " +
            file.identity.sum + (file.weight == 1 ? "" : ", weight " + dump(file.weight)) + ")";
  return text;
}

void pcrt::checkSameTrajectory(const Trajectory &before, const Trajectory &now, const Options &options) {
  std::string differences, names;
  auto compare = [&](const std::string &name, const std::string &then, const std::string &given, bool same) {
    if (same || options.mayChange(name))
      return;
    differences += (differences.empty() ? "" : "; ") + name + ": " + then + " there, " + given + " here";
    names += (names.empty() ? "" : ",") + name;
  };
  // A flag that did not exist yet in the earlier run had its default value.
  std::vector<FlagValue> defaults = trajectoryFlags(Options());
  std::map<std::string, std::string> recorded(before.flags.begin(), before.flags.end());
  recorded.insert(defaults.begin(), defaults.end());
  for (const FlagValue &flag : now.flags) {
    const std::string &then = recorded[flag.first];
    compare(flag.first, then, flag.second, valueOf(then) == valueOf(flag.second));
  }
  compare("data", showData(before.data), showData(now.data), sameData(before.data, now.data));
  compare("local-sgd", before.rounds, now.rounds, before.rounds == now.rounds);
  compare("groups", before.groups, now.groups, before.groups == now.groups);
  compare("sequence", std::to_string(before.sequence), std::to_string(now.sequence), before.sequence == now.sequence);
  if (!differences.empty())
    fail(PCRT_USAGE, (options.load.empty() ? options.checkpoint : options.load) +
                         " was trained with different settings (" + differences +
                         "); to continue with the settings given here, add --change " + names);
}

/// The value at "a.b" in `config`, or null.
static const Json *valueAt(const Json &config, const std::string &place) {
  const Json *at = &config;
  for (size_t begin = 0; begin <= place.size();) {
    size_t end = std::min(place.find('.', begin), place.size());
    std::string key = place.substr(begin, end - begin);
    if (!at->is_object() || !at->contains(key))
      return nullptr;
    at = &(*at)[key];
    begin = end + 1;
  }
  return at;
}

void pcrt::checkConfig(const Program &program, const std::string &directory) {
  std::string path = directory + "/config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    return;
  Json config = Json::parse(InputFile(path).text(), nullptr, /*allow_exceptions=*/false);
  if (!config.is_object())
    fail(PCRT_BAD_DATA, path + " is not a JSON object");
  for (const Json &meaning : program.configMeans) {
    const Json *given = nullptr; // if the key occurs more than once, the value that is not null
    std::string key = meaning.at("at").at(0).get<std::string>();
    for (const Json &place : meaning.at("at"))
      if (const Json *found = valueAt(config, place); found && (!given || given->is_null())) {
        given = found;
        key = place.get<std::string>();
      }
    bool isNull = given && given->is_null();
    const Json &there = given && !isNull                     ? *given
                        : isNull && meaning.contains("null") ? meaning.at("null")
                                                             : meaning.at("default");
    std::string what = given ? "is " + given->dump() : "is not given";
    if (!there.is_null() && (!given || isNull))
      what += ", which means " + there.dump();
    const Json &values = meaning.at("values");
    if (std::find(values.begin(), values.end(), there) == values.end())
      fail(PCRT_BAD_DATA, path + ": '" + key + "' " + what + ", but the program was compiled for " +
                              values.at(0).dump() + "; compile it from this directory");
  }
}
