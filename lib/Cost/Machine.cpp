//===- Machine.cpp - The machines that are known --------------------------------------------===//
#include "pc/Cost/Machine.h"
#include "pc/IR/ReadJson.h"
#include "pc/IR/Source.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace pc;
namespace json = llvm::json;

/// An eighth of an NVIDIA system of 8 GPUs: what the systems have in common.
static MachineModel gpu(llvm::StringRef name, llvm::StringRef device) {
  MachineModel machine;
  machine.name = name;
  machine.device = device;
  machine.unalignedShare = 0.28;
  machine.attentionShare = 0.6;
  machine.attentionKeys = 185;
  machine.memoryShare = 0.9;
  machine.opSeconds = 0.5e-6;
  machine.nodeRanks = 8;
  machine.linkShare = 0.8;
  machine.moveSeconds = 6.8e-6;
  machine.node.latency = 0.6e-6;
  machine.network.latency = 5.0e-6;
  return machine;
}

static std::vector<MachineModel> makeAll() {
  MachineModel a100 = gpu("a100", "NVIDIA A100 SXM 80 GB, 8 in a DGX A100");
  a100.f32Flops = 19.5e12;
  a100.bf16Flops = 312e12;
  a100.productShare = 0.87;
  a100.unalignedShare = 0.74;
  a100.memoryBytes = 80e9;
  a100.memoryBandwidth = 2.039e12;
  a100.node.bandwidth = 300e9;
  a100.network.bandwidth = 25e9;

  MachineModel h100 = gpu("h100", "NVIDIA H100 SXM 80 GB, 8 in a DGX H100");
  h100.f32Flops = 67e12;
  h100.bf16Flops = 989e12;
  h100.productShare = 0.61;
  h100.memoryBytes = 80e9;
  h100.memoryBandwidth = 3.35e12;
  h100.node.bandwidth = 450e9;
  h100.network.bandwidth = 50e9;

  MachineModel h200 = h100;
  h200.name = "h200";
  h200.device = "NVIDIA H200 SXM 141 GB, 8 in a DGX H200";
  h200.memoryBytes = 141e9;
  h200.memoryBandwidth = 4.8e12;

  MachineModel b200 = gpu("b200", "NVIDIA B200 SXM 180 GB, 8 in a DGX B200");
  b200.f32Flops = 75e12;
  b200.bf16Flops = 2250e12;
  b200.productShare = 0.78;
  b200.memoryBytes = 180e9;
  b200.memoryBandwidth = 7.7e12;
  b200.node.bandwidth = 900e9;
  b200.network.bandwidth = 50e9;
  return {MachineModel(), a100, h100, h200, b200};
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
  double most; ///< largest valid value
};

} // namespace

static constexpr double any = 1e300;
static const Figure figures[] = {
    {"f32_flops", [](MachineModel &m) -> double & { return m.f32Flops; }, any},
    {"bf16_flops", [](MachineModel &m) -> double & { return m.bf16Flops; }, any},
    {"product_share", [](MachineModel &m) -> double & { return m.productShare; }, 1},
    {"unaligned_share", [](MachineModel &m) -> double & { return m.unalignedShare; }, 1},
    {"attention_share", [](MachineModel &m) -> double & { return m.attentionShare; }, 1},
    {"attention_keys", [](MachineModel &m) -> double & { return m.attentionKeys; }, any},
    {"memory_bytes", [](MachineModel &m) -> double & { return m.memoryBytes; }, any},
    {"memory_bandwidth", [](MachineModel &m) -> double & { return m.memoryBandwidth; }, any},
    {"memory_share", [](MachineModel &m) -> double & { return m.memoryShare; }, 1},
    {"op_seconds", [](MachineModel &m) -> double & { return m.opSeconds; }, any},
    {"node_bandwidth", [](MachineModel &m) -> double & { return m.node.bandwidth; }, any},
    {"node_latency", [](MachineModel &m) -> double & { return m.node.latency; }, any},
    {"network_bandwidth", [](MachineModel &m) -> double & { return m.network.bandwidth; }, any},
    {"network_latency", [](MachineModel &m) -> double & { return m.network.latency; }, any},
    {"link_share", [](MachineModel &m) -> double & { return m.linkShare; }, 1},
    {"move_seconds", [](MachineModel &m) -> double & { return m.moveSeconds; }, any},
};

json::Object MachineModel::json() const {
  json::Object object{{"name", name}, {"device", device}, {"node_ranks", nodeRanks}};
  MachineModel copy = *this;
  for (const Figure &figure : figures)
    object[figure.name] = figure.of(copy);
  return object;
}

/// Sets one member. False, with the reason, where there is none or it cannot have this value.
static bool set(MachineModel &machine, llvm::StringRef key, const json::Value &value, std::string &error) {
  auto refuse = [&](const llvm::Twine &message) {
    error = ("'" + key + "' " + message).str();
    return false;
  };
  if (key == "name" || key == "device") {
    std::optional<llvm::StringRef> text = value.getAsString();
    if (!text)
      return refuse("is a text");
    (key == "name" ? machine.name : machine.device) = text->str();
    return true;
  }
  if (key == "node_ranks") {
    std::optional<int64_t> ranks = value.getAsInteger();
    if (!ranks || *ranks < 0)
      return refuse("is a number of ranks, or 0 for all");
    machine.nodeRanks = *ranks;
    return true;
  }
  for (const Figure &figure : figures) {
    if (figure.name != key)
      continue;
    std::optional<double> number = value.getAsNumber();
    bool isSeconds = key.ends_with("_seconds") || key.ends_with("_latency");
    bool mayBeZero = isSeconds || key == "memory_bytes" || key == "attention_keys";
    if (!number || *number > figure.most || !(mayBeZero ? *number >= 0 : *number > 0))
      return refuse(figure.most == 1 ? "is a number above 0 and at most 1"
                    : isSeconds      ? "is a number of seconds"
                    : mayBeZero      ? "is a number, or 0 if it is not known"
                                     : "is a number above 0, per second");
    figure.of(machine) = *number;
    return true;
  }
  std::string known;
  for (const Figure &figure : figures)
    known += ", " + figure.name.str();
  return refuse("is no member of a machine (like, name, device, node_ranks" + known + ")");
}

static std::optional<MachineModel> named(llvm::StringRef name, std::string &error) {
  const MachineModel *it =
      llvm::find_if(MachineModel::all(), [&](const MachineModel &machine) { return machine.name == name; });
  if (it != MachineModel::all().end())
    return *it;
  auto names = llvm::map_range(MachineModel::all(), [](const MachineModel &machine) { return machine.name; });
  error = "'" + name.str() + "' is no machine (" + llvm::join(names, ", ") + ", or a file *.json)";
  return std::nullopt;
}

std::optional<MachineModel> MachineModel::find(llvm::StringRef name, std::string &error) {
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
  if (!like && (!object || object->size() != std::size(figures) + 3))
    return fail("a machine is an object with all members, or with \"like\" and those that differ");
  std::optional<MachineModel> machine = like ? named(*like, error) : MachineModel();
  if (!machine)
    return fail(error);
  machine->name = name.str();
  llvm::SmallVector<llvm::StringRef> keys; // in one order, so that an error is the same each time
  for (const auto &member : *object)
    keys.push_back(member.first);
  llvm::sort(keys);
  for (llvm::StringRef key : keys)
    if (key != "like" && !set(*machine, key, *object->get(key), error))
      return fail(error);
  return machine;
}
