//===- Program.cpp - The description of a compiled program ----------------===//
// Reads pcrt_program::json and checks everything that later code relies on: each tensor lies inside the arena and is
// split evenly, parts cover their parameter, names refer to something. A wrong description is a bug of the compiler
// (PCRT_INTERNAL); a program of another ABI version is PCRT_BAD_INPUT.
//===----------------------------------------------------------------------===//
#include "base/Program.h"
#include "base/Failure.h"
#include "base/Types.h"
#include "pcrt/average.h"
#include "pcrt/description.h"

#include <cerrno>
#include <cstring>
#include <map>
#include <set>

using namespace pcrt;

// The layout that programs are compiled for: a struct of another size is another PCRT_ABI_VERSION.
static_assert(PCRT_ABI_VERSION == 16 && sizeof(pcrt_kernel) == 48 && sizeof(pcrt_device_kernel) == 48 &&
              sizeof(pcrt_image) == 32 && sizeof(pcrt_attention_desc) == 352 && sizeof(pcrt_gemm_desc) == 192 &&
              sizeof(pcrt_move_desc) == 88 && sizeof(pcrt_group) == 36 && sizeof(pcrt_flow) == 40 &&
              sizeof(pcrt_program) == 224);

std::string pcrt::withErrno(const std::string &what) { return what + ": " + strerror(errno); }

std::string pcrt::describeMesh(const Mesh &mesh) {
  std::string text;
  for (size_t axis = 0; axis < mesh.sizes.size(); ++axis)
    text += (axis ? "," : "") + mesh.names[axis] + "=" + std::to_string(mesh.sizes[axis]);
  return text.empty() ? "one rank" : text;
}

namespace {

[[noreturn]] void wrong(const std::string &what) {
  fail(PCRT_INTERNAL, "the description of the program is wrong: " + what + "; this is a bug of the compiler");
}

/// Appends entries of the description to a Program, which it borrows. Entries refer to earlier ones by name, so
/// parameters are read before states and outputs. Each method throws a Failure if its entry is wrong.
class Reader {
public:
  explicit Reader(Program &program) : program(program) {}

  void readTensor(const Json &json, Tensor &tensor) {
    tensor.name = json.value("name", "");
    std::string dtype = json.at("dtype");
    if (dtype == "f32")
      tensor.dtype = PCRT_F32;
    else if (dtype == "bf16")
      tensor.dtype = PCRT_BF16;
    else if (dtype == "i32")
      tensor.dtype = PCRT_I32;
    else if (dtype == "i8")
      tensor.dtype = PCRT_I8;
    else if (dtype == "i4")
      tensor.dtype = PCRT_I4;
    else
      wrong(tensor.name + " has dtype " + dtype);
    tensor.shape = json.at("shape").get<Dims>();
    for (const Json &axes : json.at("layout")) {
      auto &dim = tensor.layout.emplace_back();
      for (const std::string &name : axes.get<std::vector<std::string>>())
        dim.push_back(axisNamed(name));
    }
    for (const std::string &name : json.value("root", std::vector<std::string>()))
      tensor.root.push_back(axisNamed(name));
    tensor.offset = json.value("offset", int64_t(0));
  }

  /// Checks that a tensor is split evenly and, if `inArena`, lies inside the arena.
  void checkTensor(const Tensor &tensor, bool inArena) {
    if (tensor.shape.size() > size_t(kMaxRank) || tensor.layout.size() != tensor.shape.size())
      wrong(tensor.name + " has shape " + describe(tensor.shape) + " and a layout of " +
            std::to_string(tensor.layout.size()) + " dims");
    for (size_t dim = 0; dim < tensor.shape.size(); ++dim) {
      int64_t blocks = 1;
      for (int axis : tensor.layout[dim])
        blocks *= program.mesh.sizes[axis];
      if (tensor.shape[dim] < 0 || tensor.shape[dim] % blocks)
        wrong(tensor.name + ": dim " + std::to_string(dim) + " of " + describe(tensor.shape) + " is split by " +
              std::to_string(blocks));
    }
    int64_t bytes = bytesOf(tensor.dtype, blockOf(program.mesh, tensor.shape, tensor.layout, 0).elements());
    const pcrt_program &abi = program.abi;
    auto [base, size] = tensor.offset >= PCRT_DISK   ? std::pair(PCRT_DISK, abi.disk_bytes)
                        : tensor.offset >= PCRT_HOST ? std::pair(PCRT_HOST, abi.host_bytes)
                                                     : std::pair(int64_t(0), abi.arena_bytes);
    if (inArena && (tensor.offset < 0 || tensor.offset + bytes - base > size))
      wrong(tensor.name + " lies outside the arena");
  }

  int parameterNamed(const std::string &name) {
    for (size_t i = 0; i < program.parameters.size(); ++i)
      if (program.parameters[i].name == name)
        return int(i);
    wrong("there is no parameter " + name);
  }

  int axisNamed(const std::string &name) {
    for (size_t i = 0; i < program.mesh.names.size(); ++i)
      if (program.mesh.names[i] == name)
        return int(i);
    wrong("there is no mesh axis " + name);
  }

  void readParameter(const Json &json) {
    Parameter parameter;
    readTensor(json, parameter);
    checkTensor(parameter, true);
    parameter.valid = json.contains("valid") ? json["valid"].get<Dims>() : parameter.shape;
    checkValid(parameter, parameter.valid);
    parameter.frozen = json.value("frozen", false);
    parameter.group = groupIn(json);
    const Json &init = json.at("init");
    parameter.initKind = init.at("kind");
    parameter.std = init.value("std", 0.0);
    parameter.value = init.value("value", 0.0);
    if (parameter.initKind != PCRT_INIT_NORMAL && parameter.initKind != PCRT_INIT_CONSTANT)
      wrong(parameter.name + " has an unknown kind of initial values: '" + parameter.initKind + "'");
    if (init.contains("zero_row")) {
      int64_t row = init["zero_row"];
      if (parameter.valid.empty() || row < 0 || row >= parameter.valid[0])
        wrong(parameter.name + " has no row " + std::to_string(row) + " to initialize with zeros");
      int64_t size = product(parameter.valid) / parameter.valid[0];
      parameter.zeroBegin = row * size, parameter.zeroEnd = (row + 1) * size;
    }
    if (json.contains("parts")) {
      for (const Json &part : json["parts"])
        parameter.parts.push_back(
            readPart(part, part.at("key"), part.at("start"), part.at("size"), parameter.name, parameter.valid));
    } else {
      Dims start(parameter.valid.size(), 0);
      parameter.parts.push_back(
          readPart(json, json.at("key"), start, parameter.valid, parameter.name, parameter.valid));
    }
    int64_t elements = 0;
    for (const Part &part : parameter.parts)
      elements += product(part.size);
    if (elements != product(parameter.valid))
      wrong(parameter.name + " has parts of " + std::to_string(elements) + " elements");
    program.parameters.push_back(std::move(parameter));
  }

  /// A part of the tensor `name`, whose valid part is `valid`.
  Part readPart(const Json &json, uint64_t key, const Dims &start, const Dims &size, const std::string &name,
                const Dims &valid) {
    Part part{start, size, key, json.at("source").at("tensor"), json["source"].at("shape"), {}};
    const Json &source = json["source"];
    part.box = {source.value("view", part.shape), source.at("start"), source.at("size")};
    const Box &box = part.box;
    bool fits = product(box.shape) == product(part.shape) && box.shape.size() == box.start.size() &&
                box.shape.size() == box.size.size() && product(box.size) == product(part.size) &&
                part.start.size() == valid.size() && part.size.size() == valid.size();
    for (size_t dim = 0; fits && dim < box.shape.size(); ++dim)
      fits = box.start[dim] >= 0 && box.size[dim] > 0 && box.start[dim] + box.size[dim] <= box.shape[dim];
    for (size_t dim = 0; fits && dim < part.start.size(); ++dim)
      fits = part.start[dim] >= 0 && part.start[dim] + part.size[dim] <= valid[dim];
    if (!fits)
      wrong(name + " of shape " + describe(valid) + " is not a box of " + part.source + " " + describe(box.shape));
    return part;
  }

  void checkValid(const Tensor &tensor, const Dims &valid) {
    bool fits = valid.size() == tensor.shape.size();
    for (size_t dim = 0; fits && dim < valid.size(); ++dim)
      fits = valid[dim] > 0 && valid[dim] <= tensor.shape[dim];
    if (!fits)
      wrong(tensor.name + ": valid part " + describe(valid) + " of " + describe(tensor.shape));
  }

  /// Returns text such as " with sparsity 2:4 every 10 until 100". The program contains the masks; a run only compares
  /// the settings.
  static std::string sparsityIn(const Json &settings) {
    auto text = [&](const char *name, double byDefault) {
      char digits[32];
      snprintf(digits, sizeof digits, "%.9g", settings.value(name, byDefault));
      return std::string(digits);
    };
    std::string what = settings.contains("among")      ? text("kept", 0) + ":" + text("among", 0)
                       : settings.contains("sparsity") ? text("sparsity", 0)
                                                       : "";
    return what.empty() ? "" : " with sparsity " + what + " every " + text("every", 1) + " until " + text("until", 0);
  }

  static std::optional<ParameterGroup> groupIn(const Json &json) {
    if (!json.contains("group"))
      return std::nullopt;
    const Json &settings = json["group"];
    auto number = [&](const char *name) {
      return settings.contains(name) ? std::optional(settings[name].get<double>()) : std::nullopt;
    };
    std::string name = settings.at("name"), optimizer = settings.value("optimizer", name);
    return ParameterGroup{(name == optimizer ? name : name + " by " + optimizer) + sparsityIn(settings),
                          number("lr_factor").value_or(1),
                          number("decay_factor").value_or(1),
                          number("decay"),
                          number("beta1"),
                          number("beta2"),
                          number("eps"),
                          number(PCRT_EMA)};
  }

  void readState(const Json &json) {
    State state;
    readTensor(json, state);
    state.parameter = parameterNamed(json.at("parameter"));
    const Parameter &parameter = program.parameters[state.parameter];
    if (state.name == PCRT_SCALE)
      return readScale(json, parameter, std::move(state));
    for (const Json &part : json.value("parts", Json::array())) // states have no keys, because they are not drawn
      state.parts.push_back(readPart(part, /*key=*/0, part.at("start"), part.at("size"),
                                     state.name + " of " + parameter.name, state.shape));
    if (state.parts.empty()) {
      if (state.shape.empty()) {
        state.shape = parameter.shape;
        state.layout = parameter.layout;
      }
      state.parts = parameter.parts;
      if (state.shape != parameter.shape)
        wrong("state " + state.name + " of " + parameter.name + " has a different shape");
    }
    if (state.parts.size() != parameter.parts.size())
      wrong("state " + state.name + " of " + parameter.name + " has different parts than its parameter");
    checkTensor(state, true);
    program.states.push_back(std::move(state));
  }

  /// Reads the scales of a parameter that is stored as codes.
  void readScale(const Json &json, const Parameter &parameter, State state) {
    state.dims = json.at("dims").get<Dims>();
    bool fits = isCode(parameter.dtype) && state.dtype == PCRT_F32 && state.dims.size() == state.shape.size() &&
                !state.dims.empty() && parameter.valid == parameter.shape &&
                (parameter.dtype == PCRT_I8 || state.dims.size() + 1 == parameter.shape.size());
    for (size_t i = 0; fits && i < state.dims.size(); ++i)
      fits = state.dims[i] > (i ? state.dims[i - 1] : -1) && state.dims[i] < int64_t(parameter.shape.size()) &&
             state.shape[i] == parameter.shape[size_t(state.dims[i])];
    if (!fits)
      wrong("the scales of " + parameter.name + " do not fit it");
    checkTensor(state, true);
    program.states.push_back(std::move(state));
  }

  void readCache(const Json &json) {
    Cache cache;
    readTensor(json, cache);
    cache.of = json.at("of");
    checkTensor(cache, true);
    const bool hasRank = cache.shape.size() == 5 || cache.shape.size() == 6;
    if (!hasRank || cache.groups() != program.batch || cache.context() > program.sequence ||
        (!program.caches.empty() &&
         (cache.slots() != program.caches[0].slots() || cache.context() != program.caches[0].context())))
      wrong("cache " + cache.name + " of " + cache.of + " " + describe(cache.shape));
    program.caches.push_back(std::move(cache));
  }

  void readInput(const Json &json) {
    Input input;
    readTensor(json, input);
    input.kind = json.at("kind");
    checkTensor(input, true);
    input.below = json.value("below", int64_t(0));
    if (input.isByToken()) {
      Dims shape = {program.microbatches, program.batch / program.microbatches,
                    input.isByTarget() ? program.targetSequence : program.sequence};
      bool isReal = input.kind == "loss_weights";
      input.key = json.value("key", int64_t(0));
      if (input.shape != shape || input.dtype != (isReal ? PCRT_F32 : PCRT_I32))
        wrong("input " + input.kind + (isReal ? " is not f32 " : " is not i32 ") + describe(shape));
    } else if (input.kind == "data") {
      Dims front = {program.microbatches, program.batch / program.microbatches};
      if (program.generates)
        front = {program.batch};
      if (input.shape.size() < 2 || !std::equal(front.begin(), front.end(), input.shape.begin()) ||
          input.dtype == PCRT_BF16 || (input.dtype == PCRT_I32) != (input.below > 0))
        wrong("input " + input.name + " " + describe(input.shape));
    } else if (input.kind == "random") {
      input.key = json.at("key");
      if (input.shape != Dims{program.microbatches, PCRT_RANDOM_COUNT} || input.dtype != PCRT_I32 || input.key < 0)
        wrong("input random is not i32 " + describe({program.microbatches, PCRT_RANDOM_COUNT}));
    } else if (input.kind != "hyper" || input.dtype != PCRT_F32 || input.shape != Dims{PCRT_HYPER_COUNT}) {
      wrong("there is no input of kind " + input.kind + " " + describe(input.shape));
    } else {
      input.group = groupIn(json).value_or(ParameterGroup());
    }
    program.inputs.push_back(std::move(input));
  }

  void readConstant(const Json &json) {
    Constant constant;
    readTensor(json, constant);
    constant.kind = json.at("kind");
    if (constant.name.empty())
      constant.name = constant.kind;
    checkTensor(constant, true);
    constant.invFreq = json.at("inv_freq").get<std::vector<double>>();
    constant.scale = json.value("scale", 1.0);
    if ((constant.kind != "rope_cos" && constant.kind != "rope_sin") || constant.shape.size() != 2 ||
        constant.shape[1] != int64_t(constant.invFreq.size()))
      wrong("constant " + constant.kind + " " + describe(constant.shape));
    program.constants.push_back(std::move(constant));
  }

  void readOutput(const Json &json) {
    Output output;
    readTensor(json, output);
    output.kind = json.at("kind");
    checkTensor(output, false);
    output.valid = json.contains("valid") ? json["valid"].get<Dims>() : output.shape;
    checkValid(output, output.valid);
    if (output.kind == "gradient") {
      output.parameter = parameterNamed(output.name);
      const Parameter &parameter = program.parameters[output.parameter];
      output.valid = parameter.valid;
      if (output.shape != parameter.shape)
        wrong("the gradient of " + output.name + " has a different shape");
    } else if (output.kind == "loss" || output.kind == "grad_norm") {
      if (!output.shape.empty() || output.dtype != PCRT_F32)
        wrong("output " + output.kind + " is not a scalar of type f32");
    } else if (output.kind == "generated") {
      if (!program.generates || output.dtype != PCRT_F32 || output.shape.size() != 2 ||
          output.shape[0] != program.batch || (!program.caches.empty() && program.caches[0].slots() % output.shape[1]))
        wrong("output " + output.name + " " + describe(output.shape));
    } else if (output.kind == "logits" || output.kind == PCRT_ROUTING) {
      // The description may give the shape for the whole batch or for one microbatch; here it is for the batch.
      if (!output.shape.empty() && program.microbatches > 1 && output.shape[0] * program.microbatches == program.batch)
        output.shape[0] = output.valid[0] = program.batch;
      bool isRouting = output.kind == PCRT_ROUTING;
      if (output.shape.empty() || (isRouting && output.shape.size() != 3) || output.shape[0] != program.batch ||
          output.dtype == PCRT_I32)
        wrong("output " + output.kind + " " + describe(output.shape));
      if (isRouting) {
        output.layer = json.at("layer"), output.chosen = json.at("chosen");
        if (output.shape[1] != program.sequence || !output.layout[2].empty() || output.dtype != PCRT_F32 ||
            output.chosen < 1 || output.chosen > output.shape[2])
          wrong("the routing of " + output.name);
      }
    } else {
      wrong("there is no output of kind " + output.kind);
    }
    program.outputs.push_back(std::move(output));
  }

private:
  Program &program;
};

/// Turns the description of one replica into the description of all replicas. Each replica has its own samples,
/// parameters and states. Samples of the first replica come first. Only the states of rounds are shared.
void addReplicas(Program &program) {
  const Program::Rounds &rounds = program.rounds;
  auto split = [&](Tensor &tensor, size_t dim) {
    tensor.shape[dim] *= rounds.replicas;
    tensor.layout[dim].insert(tensor.layout[dim].begin(), rounds.axis);
  };
  program.batch *= rounds.replicas;
  for (Input &input : program.inputs)
    if (input.isByRow())
      split(input, 1);
  for (Output &output : program.outputs)
    if (output.kind == "logits" || output.kind == PCRT_ROUTING) {
      split(output, 0);
      output.valid[0] *= rounds.replicas;
    }
  for (Parameter &parameter : program.parameters)
    parameter.varies = !parameter.frozen;
  for (State &state : program.states)
    state.varies = state.name != PCRT_SHARED && state.name != PCRT_OUTER_MOMENTUM;
  for (const Parameter &parameter : program.parameters)
    if (parameter.varies &&
        (!program.stateOf(parameter, PCRT_SHARED) || !program.stateOf(parameter, PCRT_OUTER_MOMENTUM)))
      wrong(parameter.name + " has no state for local-SGD rounds");
}

void readAll(Program &program, const Json &json) {
  const pcrt_program &abi = program.abi;
  for (int axis = 0; axis < abi.num_mesh_axes; ++axis) {
    program.mesh.names.push_back(abi.mesh_names[axis]);
    program.mesh.sizes.push_back(abi.mesh_sizes[axis]);
    if (abi.mesh_sizes[axis] < 1)
      wrong("mesh axis " + program.mesh.names.back() + " has size " + std::to_string(abi.mesh_sizes[axis]));
  }
  if (int64_t version = json.value("abi", int64_t(0)); version != PCRT_DESCRIPTION_VERSION)
    wrong("it has version " + std::to_string(version) + ", not " + std::to_string(PCRT_DESCRIPTION_VERSION));
  Reader reader(program);
  if (json.contains("rounds")) {
    const Json &rounds = json["rounds"];
    program.rounds.axis = reader.axisNamed(rounds.at("axis"));
    program.rounds.replicas = program.mesh.sizes[program.rounds.axis];
    program.rounds.every = rounds.at("every");
    program.rounds.rate = rounds.at("rate");
    program.rounds.momentum = rounds.at("momentum");
    program.rounds.codes = rounds.at("codes");
    if (program.rounds.every < 1 || !program.abi.round)
      wrong("rounds of " + std::to_string(program.rounds.every) +
            " steps are invalid, or have no function that ends them");
  }
  std::string mode = json.at("mode");
  if (mode != "train" && mode != "eval" && mode != "generate")
    wrong("mode " + mode);
  program.training = mode == "train";
  program.generates = mode == "generate";
  program.name = json.value("name", "model");
  program.optimizer = json.value("optimizer", "adamw");
  program.microbatches = json.value("microbatches", int64_t(1));
  program.batch = json.at("batch");
  program.sequence = json.at("sequence");
  program.targetSequence = json.value("target_sequence", program.sequence);
  program.zigzag = json.value("zigzag", int64_t(0));
  program.masked = json.value("masked", false);
  if (program.zigzag < 0 || (program.zigzag && program.sequence % (2 * program.zigzag)))
    wrong("the sequence cannot be in the zigzag order of " + std::to_string(program.zigzag) + " ranks");
  program.vocabulary = json.at("vocabulary");
  if (program.microbatches < 1 || program.batch < 1 || program.sequence < 1 || program.targetSequence < 1 ||
      program.vocabulary < 1 || program.batch % program.microbatches)
    wrong("batch, sequence, vocabulary or microbatches are out of range");
  program.weights = json.value("weights", "");
  program.config = json.value("config", "{}");
  program.configMeans = Json::array();
  for (const Json &meaning : json.value("config_means", Json::array()))
    if (meaning.contains("tied"))
      program.ties.emplace_back(meaning.at("tensor"), meaning.at("tied"));
    else if (meaning.contains("adapter"))
      program.adapter = meaning.at("adapter");
    else
      program.configMeans.push_back(meaning);
  program.report = json.value("report", Json::object());
  auto readEach = [&](const char *key, void (Reader::*read)(const Json &)) {
    for (const Json &entry : json.value(key, Json::array()))
      (reader.*read)(entry);
  };
  readEach("parameters", &Reader::readParameter);
  readEach("states", &Reader::readState);
  readEach("caches", &Reader::readCache);
  readEach("inputs", &Reader::readInput);
  readEach("constants", &Reader::readConstant);
  readEach("outputs", &Reader::readOutput);
  if (program.rounds.any())
    addReplicas(program);
}

} // namespace

Program::Program(const pcrt_program &program) : abi(program) {
  if (program.abi_version != PCRT_ABI_VERSION)
    fail(PCRT_BAD_INPUT, "this program was compiled for runtime ABI " + std::to_string(program.abi_version) +
                             ", but this runtime has ABI " + std::to_string(PCRT_ABI_VERSION) + "; compile it again");
  try {
    readAll(*this, Json::parse(program.json, program.json + program.json_bytes));
  } catch (const Json::exception &error) {
    wrong(error.what());
  }
}

std::string ParameterGroup::settings() const {
  std::string text;
  auto add = [&](const char *what, double number) {
    char digits[32];
    snprintf(digits, sizeof digits, "%.9g", number);
    text += (text.empty() ? "" : ", ") + (what + std::string(digits));
  };
  if (lrFactor != 1)
    add("lr x", lrFactor);
  if (decay || decayFactor != 1)
    add(decay ? "decay " : "decay x", decay.value_or(decayFactor));
  for (auto [what, number] :
       {std::pair("beta1 ", beta1), std::pair("beta2 ", beta2), std::pair("eps ", eps), std::pair("ema ", ema)})
    if (number)
      add(what, *number);
  return text;
}

std::string Program::groups() const {
  // Counts tensors of the checkpoint, which a program may divide into several parameters.
  std::map<std::string, std::pair<std::set<std::string>, int64_t>> found; // tensors and elements
  std::set<std::string> seen; // names, because tied parameters are in several stages
  for (const Program *one : stages)
    for (const Parameter &parameter : one->parameters)
      if (bool frozen = parameter.frozen && !hasAdapter(); // all parameters of an adapter's base are frozen
          (frozen || parameter.group) && seen.insert(parameter.name).second) {
        std::string settings = frozen ? "" : parameter.group->settings(),
                    name = frozen ? "frozen" : parameter.group->name;
        auto &[tensors, elements] = found[name + (settings.empty() ? "" : ": " + settings)];
        for (const Part &part : parameter.parts)
          tensors.insert(part.source);
        elements += product(parameter.valid);
      }
  std::string text;
  for (auto &[group, size] : found)
    text += (text.empty() ? "" : "; ") + group + " (" + std::to_string(size.first.size()) + " tensors, " +
            std::to_string(size.second) + " elements)";
  return text.empty() ? "none" : text;
}

std::string Program::describeAdapter() const {
  if (!hasAdapter())
    return "none";
  std::string targets;
  for (const Json &target : adapter.at("target_modules"))
    targets += (targets.empty() ? "" : ", ") + target.get<std::string>();
  std::string dropout = adapter.at("lora_dropout") == 0 ? "" : ", dropout " + adapter.at("lora_dropout").dump();
  return "rank " + adapter.at("r").dump() + ", alpha " + adapter.at("lora_alpha").dump() + dropout + ", on " + targets;
}

std::string Program::plan() const {
  const Json &report = stages[0]->report;
  if (!report.contains("plan"))
    return "";
  return report["plan"].is_string() ? report["plan"].get<std::string>() : report["plan"].dump();
}

std::optional<Holder> Program::holderOf(const Tensor &tensor, const Parameter &parameter, int rank) const {
  for (int lower = 0; lower < stage; ++lower)
    for (const Parameter &other : stages[lower]->parameters)
      if (other.name == parameter.name)
        return std::nullopt; // if several stages have a tied tensor, the first of them writes it
  if (!tensor.isOn(mesh, rank))
    return std::nullopt;
  std::vector<int> apart = tensor.root;
  apart.push_back(stageAxis);
  if (tensor.varies)
    apart.push_back(rounds.axis);
  return pcrt::holderOf(mesh, tensor.layout, rank, apart);
}

Programs::Programs(const pcrt_program &first) {
  for (const pcrt_program *program = &first; program; program = program->next_stage)
    all.push_back(std::make_unique<Program>(*program));
  if (first.num_stages == 0)
    return;
  std::vector<const Program *> stages;
  for (const std::unique_ptr<Program> &program : all)
    stages.push_back(program.get());
  for (size_t stage = 0; stage < all.size(); ++stage) {
    Program &program = *all[stage];
    program.stageAxis = program.abi.stage_axis;
    program.stage = int(stage);
    program.stages = stages;
    const Mesh &mesh = program.mesh;
    bool good = program.stageAxis >= 0 && program.stageAxis < int(mesh.sizes.size()) &&
                mesh.sizes[program.stageAxis] == int64_t(all.size()) && mesh.sizes == all[0]->mesh.sizes &&
                program.abi.stage == int(stage) && program.abi.num_stages == int(all.size());
    if (!good)
      wrong("stage " + std::to_string(stage) + " of " + std::to_string(all.size()) + " does not fit the mesh");
  }
}

const Program &Programs::of(int rank) const {
  const Program &one = first();
  return one.stageAxis < 0 || rank >= one.mesh.ranks() ? one : *all[one.mesh.coordinate(rank, one.stageAxis)];
}
