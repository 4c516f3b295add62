//===- Description.cpp - The JSON description of a program ------------------------------===//
// Input: a planned program. Result: JSON with the names, types, layouts and arena offsets of everything that the
// runtime reads or writes: parameters with their checkpoint tensors, states, inputs, tables, outputs. runtime/README.md
// has the schema; DescriptionReader.cpp reads it back without sharing code.
//===-----------------------------------------------------------------------------===//
#include "Description.h"
#include "pc/IR/Parts.h"
#include "pc/IR/Rounds.h"
#include "pcrt/description.h"

using namespace mlir;
using namespace pc;
namespace json = llvm::json;

int64_t pc::homeOf(Value value) {
  return cast<HomeAttr>(cast<RankedTensorType>(value.getType()).getEncoding()).getOffset();
}

int64_t pc::bytesOf(Type type) {
  RankedTensorType tensor = storedType(type);
  return llvm::divideCeil(tensor.getNumElements() * tensor.getElementTypeBitWidth(), 8);
}

static json::Array numbers(ArrayRef<int64_t> values) {
  json::Array array;
  for (int64_t v : values)
    array.push_back(v);
  return array;
}

static std::string dtypeName(Type type) {
  Type element = cast<RankedTensorType>(type).getElementType();
  return element.isF32() ? "f32" : element.isBF16() ? "bf16" : "i" + std::to_string(element.getIntOrFloatBitWidth());
}

/// The members dtype, shape (global), layout and, with a home, offset.
template <typename OpT> static json::Object describe(OpT op, Value value, bool hasHome) {
  auto type = cast<RankedTensorType>(value.getType());
  json::Object object;
  object["dtype"] = dtypeName(type);
  object["shape"] = numbers(op.getGlobal() ? *op.getGlobal() : type.getShape());
  json::Array layout;
  for (int64_t d = 0; d < type.getRank(); ++d) {
    json::Array axes;
    if (op.getLayout())
      for (StringAttr axis : op.getLayout()->axes(d))
        axes.push_back(axis.getValue());
    layout.push_back(std::move(axes));
  }
  object["layout"] = std::move(layout);
  if (op.getLayout() && !op.getLayout()->getRoot().empty()) {
    json::Array root;
    for (StringAttr axis : op.getLayout()->getRoot())
      root.push_back(axis.getValue());
    object["root"] = std::move(root);
  }
  if (hasHome)
    object["offset"] = homeOf(value);
  return object;
}

/// The settings of a parameter group, by name.
static json::Object describeGroup(DictionaryAttr group) {
  json::Object object;
  for (NamedAttribute setting : group) {
    json::Value &value = object[setting.getName().getValue()];
    if (auto number = dyn_cast<FloatAttr>(setting.getValue()))
      value = number.getValueAsDouble();
    else
      value = cast<StringAttr>(setting.getValue()).getValue();
  }
  return object;
}

/// A box of a tensor in the checkpoint.
static json::Object describeSource(SourceAttr source) {
  json::Object object{{"tensor", source.getTensor()},
                      {"shape", numbers(source.getShape())},
                      {"start", numbers(source.getStart())},
                      {"size", numbers(source.getSize())}};
  if (!source.getView().empty())
    object["view"] = numbers(source.getView());
  return object;
}

/// A parameter's description has all that is needed to read and write it in checkpoints.
static json::Object describeParameter(ParameterOp op, int64_t key) {
  json::Object object = describe(op, op.getValue(), true);
  object["name"] = op.getName();
  object["valid"] = numbers(validShape(op));
  if (op.getFrozen())
    object["frozen"] = true;
  if (op.getGroup())
    object["group"] = describeGroup(*op.getGroup());
  bool normal = op.getInit().getKind() == InitKind::Normal;
  double value = op.getInit().getValue().getValueAsDouble();
  json::Object init{{"kind", normal ? PCRT_INIT_NORMAL : PCRT_INIT_CONSTANT},
                    {"std", normal ? value : 0.0},
                    {"value", normal ? 0.0 : value}};
  if (op.getInit().getZeroRow() != -1)
    init["zero_row"] = op.getInit().getZeroRow();
  object["init"] = std::move(init);
  SmallVector<ParameterPart> parts = partsOf(op);
  if (!op.getParts()) {
    object["key"] = key;
    object["source"] = describeSource(parts[0].source);
    return object;
  }
  // A packed parameter has a list of parts, each with its own box of the parameter, random key and tensor of the
  // checkpoint.
  json::Array list;
  for (const ParameterPart &part : parts)
    list.push_back(json::Object{{"start", numbers(part.start)},
                                {"size", numbers(part.size)},
                                {"key", part.key},
                                {"source", describeSource(part.source)}});
  object["parts"] = std::move(list);
  return object;
}

/// The JSON that an attribute holds, or null.
static json::Value parsed(StringRef text) {
  auto value = json::parse(text);
  if (value)
    return std::move(*value);
  llvm::consumeError(value.takeError());
  return nullptr;
}

bool pc::isSameOutput(Operation *a, Operation *b) {
  if (auto x = dyn_cast<OutputOp>(a), y = dyn_cast<OutputOp>(b); x || y)
    return x && y && x.getKind() == y.getKind() && x.getName() == y.getName();
  return cast<TopKOp>(a).getLayer() == cast<TopKOp>(b).getLayer();
}

/// A state of a parameter, or a cache of an attention. A state of another shape than its parameter has its own parts,
/// but scales have the dims of their parameter.
static json::Object describeState(StateOp state, ParameterOp parameter) {
  json::Object entry = describe(state, state.getValue(), true);
  entry["name"] = state.getName();
  entry[state.getCache() ? "of" : "parameter"] = state.getParameter();
  auto dims = parameter ? dimsOfState(state, parameter) : std::nullopt;
  if (dims && state.getName() == PCRT_SCALE) {
    entry["dims"] = numbers(*dims);
    return entry;
  }
  std::optional<SmallVector<ParameterPart>> own;
  if (dims)
    own = ownPartsOfState(state, parameter);
  if (!own)
    return entry;
  json::Array parts;
  for (const ParameterPart &part : *own)
    parts.push_back(json::Object{
        {"start", numbers(part.start)}, {"size", numbers(part.size)}, {"source", describeSource(part.source)}});
  entry["parts"] = std::move(parts);
  return entry;
}

/// A member that an input's kind does not have is left out.
static json::Object describeInput(InputOp input) {
  json::Object entry = describe(input, input.getValue(), true);
  entry["name"] = input.getName().value_or(stringifyInputKind(input.getKind()));
  if (input.getBelow())
    entry["below"] = *input.getBelow();
  if (input.getGroup())
    entry["group"] = describeGroup(*input.getGroup());
  entry["kind"] = stringifyInputKind(input.getKind());
  if (input.getKey())
    entry["key"] = *input.getKey();
  return entry;
}

/// The runtime computes the table from these frequencies.
static json::Object describeTable(RopeTableOp table) {
  json::Object entry = describe(table, table.getValue(), true);
  entry["kind"] = table.getKind() == TableKind::Cos ? "rope_cos" : "rope_sin";
  json::Array frequencies;
  for (float f : table.getInvFreq())
    frequencies.push_back(f);
  entry["inv_freq"] = std::move(frequencies);
  entry["scale"] = table.getScale().convertToDouble();
  return entry;
}

/// Adds the fields of `pc.program`: sizes of the data, and the model's configuration.
static void describeData(ProgramOp program, json::Object &object) {
  object["name"] = program.getName();
  object["batch"] = program.getBatch();
  object["sequence"] = program.getSequence();
  object["vocabulary"] = program.getVocabulary();
  if (program.getMasked())
    object["masked"] = true;
  if (program.getTargets())
    object["target_sequence"] = *program.getTargets();
  if (program.getZigzag())
    object["zigzag"] = *program.getZigzag();
  if (program.getWeights())
    object["weights"] = *program.getWeights();
  object["config"] = program.getConfig();
  object["config_means"] = parsed(program.getMeans().value_or("[]"));
}

/// The output of a router, which chooses experts of a layer.
static json::Object describeRouting(TopKOp choice) {
  json::Object entry = describe(choice, choice.getResult(), false);
  entry["kind"] = PCRT_ROUTING;
  entry["name"] = "layer " + std::to_string(*choice.getLayer());
  entry["layer"] = *choice.getLayer();
  entry["chosen"] = choice.getK();
  return entry;
}

/// Outputs have no home: a step passes them to the runtime.
static json::Object describeOutput(OutputOp output) {
  json::Object entry = describe(output, output.getValue(), false);
  entry["kind"] = stringifyOutputKind(output.getKind());
  entry["name"] = output.getName();
  auto type = cast<RankedTensorType>(output.getValue().getType());
  entry["valid"] = numbers(output.getValid()    ? *output.getValid()
                           : output.getGlobal() ? *output.getGlobal()
                                                : type.getShape());
  return entry;
}

/// Walks the planned program once. Lists have the order of the program, and indices refer to positions in them.
json::Object pc::describeProgram(ModuleOp module, ArrayRef<Operation *> outputs, int64_t arenaBytes,
                                 int64_t microbatches, json::Value report) {
  json::Array parameters, states, caches, inputs, constants, outs, mesh;
  bool trains = false, generates = false;
  std::set<std::string> optimizers;
  llvm::StringMap<ParameterOp> byName;
  int64_t imported = 0; // parameters
  json::Object object;
  module.walk([&](Operation *op) {
    if (auto parameter = dyn_cast<ParameterOp>(op)) {
      byName[parameter.getName()] = parameter;
      parameters.push_back(describeParameter(parameter, parameter.getKey() ? *parameter.getKey() : imported));
      imported += numParts(parameter);
    } else if (auto state = dyn_cast<StateOp>(op)) {
      (state.getCache() ? caches : states).push_back(describeState(state, byName.lookup(state.getParameter())));
    } else if (auto input = dyn_cast<InputOp>(op)) {
      inputs.push_back(describeInput(input));
    } else if (auto table = dyn_cast<RopeTableOp>(op)) {
      constants.push_back(describeTable(table));
    } else if (auto accumulate = dyn_cast<AccumulateOp>(op)) {
      microbatches = accumulate.getMicrobatches();
    } else if (auto program = dyn_cast<ProgramOp>(op)) {
      describeData(program, object);
    }
  });
  // A stage may have nothing to train.
  auto all = module->getParentOfType<ModuleOp>();
  (all ? all : module).walk([&](Operation *op) {
    trains |= isa<SeedOp, UpdateOp>(op);
    if (auto state = dyn_cast<StateOp>(op))
      generates |= state.getCache();
    if (isa<AdamWOp, SGDOp>(op))
      optimizers.insert(op->getName().stripDialect().str());
    else if (auto parameter = dyn_cast<ParameterOp>(op); parameter && parameter.getGroup())
      if (auto name = parameter.getGroup()->getAs<StringAttr>("optimizer"))
        optimizers.insert(name.str());
  });
  trains &= !generates; // updates set caches
  if (optimizers.empty())
    optimizers.insert(trains ? "custom" : "none");
  for (Operation *op : outputs) {
    auto choice = dyn_cast<TopKOp>(op);
    outs.push_back(choice ? describeRouting(choice) : describeOutput(cast<OutputOp>(op)));
  }
  if (MeshAttr m = meshOf(module))
    for (auto [name, size] : llvm::zip_equal(m.getNames(), m.getSizes()))
      mesh.push_back(json::Array{name.getValue(), size});
  if (std::optional<Rounds> rounds = Rounds::of(module))
    object["rounds"] = json::Object{{"axis", rounds->axis.getValue()},
                                    {"every", rounds->every},
                                    {"rate", rounds->rate},
                                    {"momentum", rounds->momentum},
                                    {"codes", rounds->codes}};
  object["abi"] = PCRT_DESCRIPTION_VERSION;
  object["mode"] = generates ? "generate" : trains ? "train" : "eval";
  object["optimizer"] = llvm::join(optimizers, "+");
  object["microbatches"] = generates ? 1 : microbatches; // a call of a step that generates computes one microbatch
  object["mesh"] = std::move(mesh);
  object["arena_bytes"] = arenaBytes;
  object["parameters"] = std::move(parameters);
  object["states"] = std::move(states);
  if (generates)
    object["caches"] = std::move(caches);
  object["inputs"] = std::move(inputs);
  object["constants"] = std::move(constants);
  object["outputs"] = std::move(outs);
  object["report"] = std::move(report);
  return object;
}
