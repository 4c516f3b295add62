//===- Info.cpp - The answer of --info ------------------------------------===//
// The text is derived from the JSON, so that both have the same facts. The ways to multiply bf16 are measured here,
// because they depend on the machine.
//===----------------------------------------------------------------------===//
#include "run/Info.h"
#include "base/TensorSum.h"
#include "cpu/Bf16.h"
#include "cuda/Kernels.h"
#include "pcrt/version.h"
#include "replicas/Rounds.h"
#include "run/Generation.h"

#include <algorithm>
#include <set>

using namespace pcrt;

static std::string compilerOf() { return pc_compiler ? pc_compiler : "none (written by hand)"; }

/// The certificate; null if there is none.
static Json certificate() { return pc_certificate ? Json::parse(pc_certificate, nullptr, false) : Json(); }

std::string pcrt::certificateSum() {
  Json all = certificate();
  return all.is_object() ? all.value("sum", "") : "";
}

Json pcrt::describeAsJson(const Program &program) {
  int64_t elements = 0, arena = 0, disk = 0, kernels = 0, products = 0, moves = 0;
  std::set<std::string> seen; // tied parameters are in several stages
  for (const Program *stage : program.stages) {
    for (const Parameter &parameter : stage->parameters)
      elements += seen.insert(parameter.name).second ? product(parameter.valid) : 0;
    arena = std::max(arena, stage->abi.arena_bytes);
    disk = std::max(disk, stage->abi.disk_bytes);
    kernels += stage->abi.num_kernels;
    products += stage->abi.num_gemms;
    moves += stage->abi.num_moves;
  }
  Bf16Uses uses;
  for (const Program *stage : program.stages)
    uses.add(stage->abi);
  const Json bf16 = describe(chooseBf16({measureBf16(uses)}));
  Json mesh = Json::object(), images = Json::array();
  for (size_t axis = 0; axis < program.mesh.sizes.size(); ++axis)
    mesh[program.mesh.names[axis]] = program.mesh.sizes[axis];
  for (int i = 0; i < program.abi.num_images; ++i)
    images.push_back(cuda::describeImages(program.abi.images + i, 1));
  std::string means = program.configMeans.dump();
  Json facts = {{"model", program.name},
                {"model_sum", sumOfBytes(means.data(), int64_t(means.size())).text()},
                {"mode", program.generates  ? "generate"
                         : program.training ? "train"
                                            : "eval"},
                {"mesh", mesh},
                {"stages", program.stages.size()},
                {"plan", program.plan()},
                {"batch", program.batch},
                {"sequence", program.sequence},
                {"microbatches", program.microbatches},
                {"vocabulary", program.vocabulary},
                {"parameters", elements},
                {"optimizer", program.training ? program.optimizer : "none"},
                {"groups", program.groups()},
                {"adapter", program.describeAdapter()},
                {"local_sgd", describeRounds(program)},
                {"arena_bytes", arena},
                {"target", program.abi.target == PCRT_CPU ? "cpu" : "cuda"},
                {"architectures", images},
                {"kernels", kernels},
                {"matrix_products", products},
                {"moves", moves},
                {"abi", program.abi.abi_version},
                {"compiler", compilerOf()},
                {"runtime", std::string(pcrt_version)},
                {"certificate", certificate()}};
  if (disk)
    facts["disk_bytes"] = disk;
  if (!bf16.empty())
    facts["bf16"] = bf16;
  if (program.generates) {
    GenerationShape shape = shapeOf(program);
    facts["generation"] = {{"groups", shape.groups},   {"slots", shape.turns * shape.slots},
                           {"context", shape.context}, {"size", shape.size},
                           {"chunk", shape.chunk},     {"sampling", samples(program)}};
    return facts;
  }
  for (const Program *stage : program.stages)
    for (const Input &input : stage->inputs)
      if (input.kind == "data")
        facts["inputs"][input.name] = {{"dtype", input.dtype == PCRT_I32 ? "i32" : "f32"},
                                       {"row", Dims(input.shape.begin() + 2, input.shape.end())}};
  return facts;
}

static std::string line(const std::string &key, const std::string &value) {
  return key + std::string(14 - key.size(), ' ') + value + "\n";
}

std::string pcrt::describeProgram(const Program &program) {
  Json facts = describeAsJson(program);
  auto number = [&](const char *key) { return facts[key].dump(); };
  auto text = [&](const char *key) { return facts[key].get<std::string>(); };
  std::string bf16, inputs;
  const Json named = facts.value("inputs", Json::object());
  for (const auto &[name, input] : named.items())
    inputs += line("input", name + ": rows of " + input["row"].dump() + ", " + input["dtype"].get<std::string>());
  const Json ways = facts.value("bf16", Json::object());
  for (const auto &[what, way] : ways.items())
    bf16 += line("bf16", what + " " + way.get<std::string>());
  std::string batch = line(
      "batch", number("batch") + (inputs.empty() ? " sequences of " + number("sequence") + " tokens, " : " samples, ") +
                   number("microbatches") + " microbatch" + (program.microbatches > 1 ? "es" : ""));
  if (program.generates) {
    const Json &sizes = facts["generation"];
    batch = line("slots", sizes["slots"].dump() + " per data rank, of " + sizes["context"].dump() + " tokens") +
            line("steps", "of " + sizes["size"].dump() + " tokens per data rank" +
                              (sizes["chunk"] == 0 ? "" : ", and of " + sizes["chunk"].dump() + " for prompts"));
  }
  return line("model", text("model")) + line("mode", text("mode")) + line("mesh", describeMesh(program.mesh)) +
         (program.plan().empty() ? "" : line("plan", program.plan())) + batch +
         (inputs.empty() ? line("vocabulary", number("vocabulary")) : inputs) +
         line("parameters", number("parameters")) + line("optimizer", text("optimizer")) +
         (text("groups") == "none" ? "" : line("groups", text("groups"))) +
         (program.hasAdapter() ? line("adapter", text("adapter")) : "") +
         line("arena", (program.stages.size() > 1 ? "at most " : "") + number("arena_bytes") + " bytes per rank") +
         (keepsOnDisk(program) ? line("disk", number("disk_bytes") + " bytes per rank, in --scratch DIR") : "") +
         line("target", program.abi.target == PCRT_CPU
                            ? "cpu"
                            : "cuda: " + cuda::describeImages(program.abi.images, program.abi.num_images)) +
         line("code", number("kernels") + " kernels, " + number("matrix_products") + " matrix products, " +
                          number("moves") + " moves") +
         bf16 + (certificateSum().empty() ? "" : line("certificate", certificateSum())) + describeVersions(program);
}

std::string pcrt::describeVersions(const Program &program) {
  return line("compiler", compilerOf()) +
         line("runtime", std::string(pcrt_version) + ", ABI " + std::to_string(program.abi.abi_version));
}
