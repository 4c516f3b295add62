//===- Machine.cpp - The known machines -----------------------------------------------------===//
// Figures of known GPUs, and the JSON form of a machine. Peak rates are those of data sheets; shares and latencies are
// fitted to measurements (docs/rationale/machines.md). A file gives either all figures of a machine, or the name of a
// known machine (`like`) and the figures that differ. Reading checks every member and refuses unknown ones.
//===-----------------------------------------------------------------------------===//
#include "pc/Cost/Machine.h"
#include "pc/Support/ReadJson.h"
#include "pc/Support/Source.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Process.h"
#include <cmath>

using namespace pc;
namespace json = llvm::json;

/// One GPU of an NVIDIA system of 8 GPUs, with the figures that all these systems share.
static MachineModel gpu(llvm::StringRef name, llvm::StringRef device) {
  MachineModel machine;
  machine.name = name;
  machine.device = device;
  machine.unalignedShare = 0.28;
  machine.attentionShare = 0.6;
  machine.attentionKeys = 185;
  machine.productRamp = 57;
  machine.memoryShare = 0.9;
  machine.streamShare = 0.62;
  machine.opSeconds = 0.5e-6;
  machine.nodeRanks = 8;
  machine.hostBytes = 250e9;
  machine.linkShare = 0.88;
  machine.moveSeconds = 6.8e-6;
  machine.collectiveSeconds = 8.4e-6;
  machine.nodeHopSeconds = 3.4e-6;
  machine.networkHopSeconds = 14e-6;
  machine.treeHopSeconds = 14e-6;
  machine.contendShare = 0.51;
  machine.straggleShare = 0.0064;
  machine.node.latency = 0.6e-6;
  machine.network.latency = 5.0e-6;
  return machine;
}

/// Peaks are from the data sheets. Other figures were fitted to measurements (docs/rationale/machines.md).
static std::vector<MachineModel> makeAll() {
  MachineModel a100 = gpu("a100", "NVIDIA A100 SXM 80 GB, 8 in a DGX A100");
  a100.f32Flops = 19.5e12;
  a100.bf16Flops = 312e12;
  a100.productShare = 0.83;
  a100.multiprocessors = 108;
  a100.sharedBandwidth = 19.5e12;
  a100.unalignedShare = 0.74;
  a100.memoryBytes = 80e9;
  a100.memoryBandwidth = 2.039e12;
  a100.node.bandwidth = 300e9;
  a100.network.bandwidth = 25e9;

  MachineModel h100 = gpu("h100", "NVIDIA H100 SXM 80 GB, 8 in a DGX H100");
  h100.f32Flops = 67e12;
  h100.bf16Flops = 989e12;
  h100.fp8Flops = 1979e12;
  h100.productShare = 0.73;
  h100.multiprocessors = 132;
  h100.sharedBandwidth = 30.9e12;
  h100.memoryBytes = 80e9;
  h100.memoryBandwidth = 3.35e12;
  h100.node.bandwidth = 450e9;
  h100.network.bandwidth = 50e9;
  h100.hostBandwidth = 50e9;

  MachineModel h200 = h100;
  h200.name = "h200";
  h200.device = "NVIDIA H200 SXM 141 GB, 8 in a DGX H200";
  h200.memoryBytes = 141e9;
  h200.memoryBandwidth = 4.8e12;

  MachineModel b200 = gpu("b200", "NVIDIA B200 SXM 180 GB, 8 in a DGX B200");
  b200.f32Flops = 75e12;
  b200.bf16Flops = 2250e12;
  b200.productShare = 0.78;
  b200.multiprocessors = 148;
  b200.sharedBandwidth = 35.0e12;
  b200.memoryBytes = 180e9;
  b200.memoryBandwidth = 7.7e12;
  b200.node.bandwidth = 900e9;
  b200.network.bandwidth = 50e9;
  b200.hostBandwidth = 50e9;
  return {MachineModel(), a100, h100, h200, b200};
}

double MachineModel::wholeStep(double seconds, int64_t ranks) const {
  double nodes = nodeRanks ? std::max(1.0, static_cast<double>(ranks) / static_cast<double>(nodeRanks)) : 1;
  return seconds * (1 + straggleShare * std::log2(nodes)) + stepSeconds;
}

llvm::ArrayRef<MachineModel> MachineModel::all() {
  static const std::vector<MachineModel> machines = makeAll();
  return machines;
}

llvm::StringRef MachineModel::nameFor(llvm::StringRef arch) {
  unsigned number = 80;
  arch.consume_front("sm_");
  arch.consumeInteger(10, number);
  return number >= 100 ? "b200" : number >= 90 ? "h100" : "a100";
}

namespace {

/// A figure of a machine and its name in JSON.
struct Figure {
  llvm::StringLiteral name;
  double &(*of)(MachineModel &);
  double most;          ///< largest valid value
  bool isNeeded = true; ///< whether a file without `like` must have it
  bool mayBeZero = false;
};

} // namespace

static constexpr double any = 1e300;
static const Figure figures[] = {
    {"f32_flops", [](MachineModel &m) -> double & { return m.f32Flops; }, any},
    {"bf16_flops", [](MachineModel &m) -> double & { return m.bf16Flops; }, any},
    {"fp8_flops", [](MachineModel &m) -> double & { return m.fp8Flops; }, any, false, true},
    {"product_share", [](MachineModel &m) -> double & { return m.productShare; }, 1},
    {"unaligned_share", [](MachineModel &m) -> double & { return m.unalignedShare; }, 1},
    {"accumulate_seconds", [](MachineModel &m) -> double & { return m.accumulateSeconds; }, any, false, true},
    {"product_ramp", [](MachineModel &m) -> double & { return m.productRamp; }, any, false, true},
    {"attention_share", [](MachineModel &m) -> double & { return m.attentionShare; }, 1},
    {"attention_keys", [](MachineModel &m) -> double & { return m.attentionKeys; }, any, true, true},
    {"shared_bandwidth", [](MachineModel &m) -> double & { return m.sharedBandwidth; }, any, false, true},
    {"memory_bytes", [](MachineModel &m) -> double & { return m.memoryBytes; }, any, true, true},
    {"memory_bandwidth", [](MachineModel &m) -> double & { return m.memoryBandwidth; }, any},
    {"memory_share", [](MachineModel &m) -> double & { return m.memoryShare; }, 1},
    {"stream_share", [](MachineModel &m) -> double & { return m.streamShare; }, 1, false},
    {"op_seconds", [](MachineModel &m) -> double & { return m.opSeconds; }, any, true, true},
    {"disk_bandwidth", [](MachineModel &m) -> double & { return m.diskBandwidth; }, any, false},
    {"host_bandwidth", [](MachineModel &m) -> double & { return m.hostBandwidth; }, any, false},
    {"host_bytes", [](MachineModel &m) -> double & { return m.hostBytes; }, any, false, true},
    {"node_bandwidth", [](MachineModel &m) -> double & { return m.node.bandwidth; }, any},
    {"node_latency", [](MachineModel &m) -> double & { return m.node.latency; }, any, true, true},
    {"network_bandwidth", [](MachineModel &m) -> double & { return m.network.bandwidth; }, any},
    {"network_latency", [](MachineModel &m) -> double & { return m.network.latency; }, any, true, true},
    {"all_reduce_speed", [](MachineModel &m) -> double & { return m.allReduceSpeed; }, any, false},
    {"link_share", [](MachineModel &m) -> double & { return m.linkShare; }, 1},
    {"move_seconds", [](MachineModel &m) -> double & { return m.moveSeconds; }, any, true, true},
    {"collective_seconds", [](MachineModel &m) -> double & { return m.collectiveSeconds; }, any, false, true},
    {"node_hop_seconds", [](MachineModel &m) -> double & { return m.nodeHopSeconds; }, any, false, true},
    {"network_hop_seconds", [](MachineModel &m) -> double & { return m.networkHopSeconds; }, any, false, true},
    {"tree_hop_seconds", [](MachineModel &m) -> double & { return m.treeHopSeconds; }, any, false, true},
    {"contend_share", [](MachineModel &m) -> double & { return m.contendShare; }, 1, false, true},
    {"jitter_seconds", [](MachineModel &m) -> double & { return m.jitterSeconds; }, any, false, true},
    {"straggle_share", [](MachineModel &m) -> double & { return m.straggleShare; }, 1, false, true},
    {"step_seconds", [](MachineModel &m) -> double & { return m.stepSeconds; }, any, false, true},
    {"spread", [](MachineModel &m) -> double & { return m.spread; }, 1, false, true},
};
/// Figures that are integers.
static constexpr std::pair<llvm::StringLiteral, int64_t MachineModel::*> counts[] = {
    {"node_ranks", &MachineModel::nodeRanks}, {"multiprocessors", &MachineModel::multiprocessors}};

/// Writes every figure, so that a report states the whole model.
json::Object MachineModel::json() const {
  json::Object object{{"name", name}, {"device", device}};
  json::Array tiles;
  for (const ProductTile &tile : productTiles)
    tiles.push_back(json::Array{tile.rows, tile.columns, tile.share});
  object["product_tiles"] = std::move(tiles);
  for (auto [key, member] : counts)
    object[key] = this->*member;
  MachineModel copy = *this;
  for (const Figure &figure : figures)
    object[figure.name] = figure.of(copy);
  return object;
}

/// The shortest description: the most similar known machine, and the members that differ.
json::Object MachineModel::file() const {
  json::Object least;
  for (const MachineModel &other : all()) {
    json::Object known = other.json(), differs{{"like", other.name}};
    for (auto &[key, value] : json())
      if (key != "name" && *known.get(key) != value)
        differs[key] = value;
    if (least.empty() || differs.size() < least.size())
      least = std::move(differs);
  }
  return least;
}

/// Reads tiles such as [[256, 128, 1], ...]. Returns false if the value has another form.
static bool setTiles(MachineModel &machine, const json::Value &value) {
  const json::Array *rows = value.getAsArray();
  machine.productTiles.clear();
  for (const json::Value &row : rows ? *rows : json::Array()) {
    const json::Array *tile = row.getAsArray();
    if (!tile || tile->size() != 3)
      return false;
    std::optional<int64_t> m = (*tile)[0].getAsInteger(), n = (*tile)[1].getAsInteger();
    std::optional<double> share = (*tile)[2].getAsNumber();
    if (!m || !n || !share || *m < 1 || *n < 1 || !(*share > 0) || *share > 1)
      return false;
    machine.productTiles.push_back({*m, *n, *share});
  }
  return rows;
}

/// The text that describes the valid values of a figure.
static llvm::StringRef whyNot(const Figure &figure) {
  if (figure.most == 1)
    return figure.mayBeZero ? "must be a number from 0 to 1" : "must be a number above 0 and at most 1";
  if (figure.name.ends_with("_speed"))
    return "is a number above 0";
  if (figure.name.ends_with("_seconds") || figure.name.ends_with("_latency"))
    return "must be a number of seconds";
  return figure.mayBeZero ? "must be a number, or 0 for unknown" : "must be a number above 0, per second";
}

/// Sets one member. Returns false, and the reason, if there is no such member or the value is not valid.
static bool set(MachineModel &machine, llvm::StringRef key, const json::Value &value, std::string &error) {
  auto refuse = [&](const llvm::Twine &message) {
    error = ("'" + key + "' " + message).str();
    return false;
  };
  if (key == "name" || key == "device") {
    std::optional<llvm::StringRef> text = value.getAsString();
    if (!text)
      return refuse("must be a string");
    (key == "name" ? machine.name : machine.device) = text->str();
    return true;
  }
  if (key == "product_tiles")
    return setTiles(machine, value) ||
           refuse("must be a list of [rows, columns, fraction of peak], as in [[256, 128, 1], ...]");
  for (auto [name, member] : counts)
    if (key == name) {
      std::optional<int64_t> number = value.getAsInteger();
      if (!number || *number < 0)
        return refuse("must be a whole number, where 0 means " +
                      llvm::Twine(key == "node_ranks" ? "all ranks" : "unknown"));
      machine.*member = *number;
      return true;
    }
  for (const Figure &figure : figures) {
    if (figure.name != key)
      continue;
    std::optional<double> number = value.getAsNumber();
    if (!number || *number > figure.most || !(figure.mayBeZero ? *number >= 0 : *number > 0))
      return refuse(whyNot(figure));
    figure.of(machine) = *number;
    return true;
  }
  std::string known;
  for (const Figure &figure : figures)
    known += ", " + figure.name.str();
  return refuse("is not a field of a machine (like, name, device, node_ranks" + known +
                ", multiprocessors, product_tiles)");
}

/// The error lists the known names.
static std::optional<MachineModel> named(llvm::StringRef name, std::string &error) {
  const MachineModel *it =
      llvm::find_if(MachineModel::all(), [&](const MachineModel &machine) { return machine.name == name; });
  if (it != MachineModel::all().end())
    return *it;
  auto names = llvm::map_range(MachineModel::all(), [](const MachineModel &machine) { return machine.name; });
  error = "'" + name.str() + "' is not a machine (expected " + llvm::join(names, ", ") + ", here, or a *.json file)";
  return std::nullopt;
}

/// The path to which pc-calibrate writes its measurements.
static std::string cachedMachine() {
  std::optional<std::string> cache = llvm::sys::Process::GetEnv("XDG_CACHE_HOME");
  std::optional<std::string> home = llvm::sys::Process::GetEnv("HOME");
  return (cache && !cache->empty() ? *cache : home.value_or("") + "/.cache") + "/pc/here.json";
}

/// A file is checked completely: unknown members, wrong types and missing figures are errors.
std::optional<MachineModel> MachineModel::find(llvm::StringRef name, std::string &error) {
  if (name == "here") {
    std::string path = cachedMachine();
    if (llvm::sys::fs::exists(path))
      return find(path, error);
    error = "this machine has not been measured yet; run pc-calibrate, which writes " + path;
    return std::nullopt;
  }
  if (!name.ends_with(".json"))
    return named(name, error);
  auto fail = [&](const llvm::Twine &message) {
    error = (name + ": " + message).str();
    return std::nullopt;
  };
  std::string why;
  std::unique_ptr<llvm::MemoryBuffer> buffer = readFile(name, why);
  if (!buffer)
    return fail(why);
  llvm::Expected<json::Value> value = readJson(buffer->getBuffer());
  if (!value)
    return fail(llvm::toString(value.takeError()));
  json::Object *object = value->getAsObject();
  std::optional<llvm::StringRef> like = object ? object->getString("like") : std::nullopt;
  // Without "like", every figure that has no default must be present.
  auto lacks = [&](const Figure &figure) { return figure.isNeeded && !object->get(figure.name); };
  // A machine that is like a known one states only the figures that differ; any other states all.
  if (!like && (!object || !object->get("name") || !object->get("node_ranks") || llvm::any_of(figures, lacks)))
    return fail("a machine must be a JSON object with all fields, or with \"like\" and the fields that differ");
  std::optional<MachineModel> machine = like ? named(*like, error) : MachineModel();
  if (!machine)
    return fail(error);
  machine->name = name.str();
  llvm::SmallVector<llvm::StringRef> keys; // sorted, so that errors are deterministic
  for (const auto &member : *object)
    keys.push_back(member.first);
  llvm::sort(keys);
  for (llvm::StringRef key : keys)
    if (key != "like" && key != "measured" && !set(*machine, key, *object->get(key), error))
      return fail(error);
  return machine;
}
