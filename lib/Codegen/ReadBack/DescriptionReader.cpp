//===- DescriptionReader.cpp - Reads the JSON description of a program back ------------------===//
// Compares every field of the description with the planned program, in the order of the program's ops, and refuses
// entries that are left over. It shares no code with Host/Description.cpp.
//===-----------------------------------------------------------------------------===//
#include "DescriptionReader.h"

#include "pc/IR/Calls.h"
#include "pc/IR/Parts.h"
#include "pc/IR/Rounds.h"
#include "pcrt/description.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace pc;
namespace json = llvm::json;

namespace {

/// Compares one description. `at` is the op that an error names; `taken` counts the used entries of each list.
class Reader {
public:
  Reader(ModuleOp planned, const json::Object &object) : planned(planned), object(object) {}

  /// Compares every entry with the op that it describes, in program order.
  bool program(ArrayRef<Operation *> outputs) {
    ProgramOp about;
    SmallVector<StringRef> optimizers;
    bool trains = false;
    int64_t microbatches = 1, arena = 0;
    auto all = planned->getParentOfType<ModuleOp>();
    // Stages are modules of their own. Whether the program trains, and with which optimizers, is a property of all
    // stages.
    (all ? all : planned).walk([&](Operation *op) {
      auto state = dyn_cast<StateOp>(op);
      generates = generates || (state && state.getCache());
      trains = trains || isa<SeedOp, UpdateOp>(op);
      if (isa<AdamWOp>(op))
        optimizers.push_back("adamw");
      if (isa<SGDOp>(op))
        optimizers.push_back("sgd");
      if (auto parameter = dyn_cast<ParameterOp>(op))
        if (DictionaryAttr group = parameter.getGroupAttr(); group && group.contains("optimizer"))
          optimizers.push_back(cast<StringAttr>(group.get("optimizer")).getValue());
    });
    trains = trains && !generates;
    llvm::sort(optimizers);
    optimizers.erase(llvm::unique(optimizers), optimizers.end());
    // All other entries describe this stage's program.
    planned.walk([&](Operation *op) {
      if (auto one = dyn_cast<ProgramOp>(op))
        about = one;
      if (auto one = dyn_cast<AccumulateOp>(op))
        microbatches = static_cast<int64_t>(one.getMicrobatches());
      if (auto task = dyn_cast<TaskOp>(op); task && task.getMicrobatch() && !generates)
        microbatches = std::max(microbatches, static_cast<int64_t>(*task.getMicrobatch()) + 1);
      if (auto one = dyn_cast<ArenaOp>(op))
        arena = static_cast<int64_t>(one.getBytes());
    });
    if (!about) {
      planned.emitError() << "an executable needs a pc.program with the sizes of its data, such as: "
                             "pc.program \"mine\" batch 8 sequence 32 vocabulary 256 config \"{}\"";
      return false;
    }
    at = about;
    json::Array mesh;
    if (MeshAttr all = meshOf(planned))
      for (auto [name, size] : llvm::zip_equal(all.getNames(), all.getSizes()))
        mesh.push_back(json::Array{name.getValue(), size});
    auto orNone = [](auto value) { return value ? json::Value(*value) : json::Value(nullptr); };
    std::optional<Rounds> rounds = Rounds::of(planned);
    json::Value round = nullptr;
    if (rounds)
      round = json::Object{{"axis", rounds->axis.getValue()},
                           {"every", rounds->every},
                           {"rate", rounds->rate},
                           {"momentum", rounds->momentum},
                           {"codes", rounds->codes}};
    return is("abi", PCRT_DESCRIPTION_VERSION) && is("rounds", round) && is("name", about.getName()) &&
           is("batch", static_cast<int64_t>(about.getBatch())) &&
           is("sequence", static_cast<int64_t>(about.getSequence())) &&
           is("vocabulary", static_cast<int64_t>(about.getVocabulary())) && is("zigzag", orNone(about.getZigzag())) &&
           is("masked", about.getMasked() ? json::Value(true) : json::Value(nullptr)) &&
           is("target_sequence", orNone(about.getTargets())) && is("weights", orNone(about.getWeights())) &&
           is("config", about.getConfig()) && is("config_means", json(about.getMeans().value_or("[]"))) &&
           is("mode", generates ? "generate"
                      : trains  ? "train"
                                : "eval") &&
           is("optimizer", !optimizers.empty() ? llvm::join(optimizers, "+")
                           : trains            ? "custom"
                                               : "none") &&
           is("microbatches", microbatches) && is("arena_bytes", arena) && is("mesh", std::move(mesh)) && leaves() &&
           shown(outputs);
  }

private:
  bool refuse(Operation *op, const Twine &why) {
    op->emitOpError() << why << " in the executable's description";
    return false;
  }
  /// Returns true if a field of `entry` equals `wanted`. If `wanted` is null, the field must be absent.
  bool is(const json::Object &entry, StringRef key, const json::Value &wanted) {
    const json::Value *found = entry.get(key);
    if (found ? *found == wanted : wanted == json::Value(nullptr))
      return true;
    std::string text;
    llvm::raw_string_ostream(text) << "has a different '" << key << "': " << (found ? *found : json::Value(nullptr));
    return refuse(at, text);
  }
  bool is(StringRef key, const json::Value &wanted) { return is(object, key, wanted); }
  /// The value of a JSON text, or null if it is invalid.
  static json::Value json(StringRef text) {
    if (auto value = json::parse(text))
      return std::move(*value);
    else
      llvm::consumeError(value.takeError());
    return nullptr;
  }
  static json::Value list(ArrayRef<int64_t> values) { return json::Array(values); }
  static json::Value names(ArrayRef<StringAttr> axes) {
    return json::Array(llvm::map_range(axes, [](StringAttr axis) { return axis.getValue(); }));
  }

  /// Returns the next entry of a list, for `op`; null after an error.
  const json::Object *entryFor(Operation *op, StringRef key) {
    at = op;
    const json::Array *entries = object.getArray(key);
    size_t &number = taken[key];
    const json::Object *entry = entries && number < entries->size() ? (*entries)[number++].getAsObject() : nullptr;
    if (!entry)
      refuse(op, "is missing from '" + key + "'");
    return entry;
  }

  template <typename OpT> bool tensor(OpT op, Value value, const json::Object &entry, bool hasHome) {
    auto type = cast<RankedTensorType>(value.getType());
    std::optional<PlaceAttr> layout = op.getLayout();
    json::Array dims;
    for (int64_t d = 0; d < type.getRank(); ++d)
      dims.push_back(layout ? names(layout->axes(d)) : json::Array());
    bool hasRoot = layout && !layout->getRoot().empty();
    Type element = type.getElementType();
    return is(entry, "dtype",
              element.isF32()    ? "f32"
              : element.isBF16() ? "bf16"
                                 : ("i" + Twine(element.getIntOrFloatBitWidth())).str()) &&
           is(entry, "shape", list(op.getGlobal() ? *op.getGlobal() : type.getShape())) &&
           is(entry, "layout", std::move(dims)) && is(entry, "root", hasRoot ? names(layout->getRoot()) : nullptr) &&
           is(entry, "offset", hasHome ? json::Value(homeOrNone(value)) : json::Value(nullptr));
  }

  /// The settings of a parameter group, which may be null.
  bool group(DictionaryAttr group, const json::Object &entry) {
    json::Object wanted;
    for (NamedAttribute setting : group ? group : DictionaryAttr::get(planned.getContext()))
      if (auto number = dyn_cast<FloatAttr>(setting.getValue()))
        wanted[setting.getName().getValue()] = number.getValueAsDouble();
      else
        wanted[setting.getName().getValue()] = cast<StringAttr>(setting.getValue()).getValue();
    return is(entry, "group", group ? json::Value(std::move(wanted)) : json::Value(nullptr));
  }

  /// Checks the source in the checkpoint of a parameter, or of a part of it.
  bool source(SourceAttr source, const json::Object &entry) {
    const json::Object *found = entry.getObject("source");
    return (found || refuse(at, "has no source")) && is(*found, "tensor", source.getTensor()) &&
           is(*found, "shape", list(source.getShape())) && is(*found, "start", list(source.getStart())) &&
           is(*found, "size", list(source.getSize())) &&
           is(*found, "view", source.getView().empty() ? json::Value(nullptr) : json::Value(list(source.getView())));
  }

  /// Checks name, shape, init and source of a parameter.
  bool parameter(ParameterOp op) {
    const json::Object *entry = entryFor(op, "parameters");
    const json::Object *init = entry ? entry->getObject("init") : nullptr;
    bool isNormal = op.getInit().getKind() == InitKind::Normal;
    double number = op.getInit().getValue().getValueAsDouble();
    int64_t zeros = op.getInit().getZeroRow();
    if (!init)
      return entry && refuse(op, "has no init");
    if (!tensor(op, op.getValue(), *entry, true) || !is(*entry, "name", op.getName()) ||
        !is(*entry, "valid", list(validShape(op))) ||
        !is(*entry, "frozen", op.getFrozen() ? json::Value(true) : json::Value(nullptr)) ||
        !group(op.getGroupAttr(), *entry) || !is(*init, "kind", isNormal ? PCRT_INIT_NORMAL : PCRT_INIT_CONSTANT) ||
        !is(*init, "std", isNormal ? number : 0.0) || !is(*init, "value", isNormal ? 0.0 : number) ||
        !is(*init, "zero_row", zeros == -1 ? json::Value(nullptr) : json::Value(zeros)))
      return false;
    int64_t place = std::exchange(imported, imported + numParts(op));
    if (!op.getParts())
      return is(*entry, "key", op.getKey() ? static_cast<int64_t>(*op.getKey()) : place) &&
             source(partsOf(op)[0].source, *entry);
    const json::Array *parts = entry->getArray("parts");
    SmallVector<ParameterPart> wanted = partsOf(op);
    if (!parts || parts->size() != wanted.size())
      return refuse(op, "has a different number of parts");
    for (auto [part, found] : llvm::zip_equal(wanted, *parts)) {
      const json::Object *one = found.getAsObject();
      if (!one)
        return refuse(op, "has an invalid part");
      if (!is(*one, "start", list(part.start)) || !is(*one, "size", list(part.size)) || !is(*one, "key", part.key) ||
          !source(part.source, *one))
        return false;
    }
    return true;
  }

  /// A state has parts if its shape differs from its parameter's.
  bool partsOfState(StateOp state, const json::Object &entry) {
    ParameterOp parameter = byName.lookup(state.getParameter());
    std::optional<SmallVector<int64_t>> dims;
    if (parameter)
      dims = dimsOfState(state, parameter);
    if (state.getName() == PCRT_SCALE)
      return dims && is(entry, "dims", list(*dims)) && is(entry, "parts", nullptr);
    auto wanted = dims ? ownPartsOfState(state, parameter) : std::nullopt;
    if (!wanted)
      return is(entry, "parts", nullptr);
    const json::Array *parts = entry.getArray("parts");
    if (!parts || parts->size() != wanted->size())
      return refuse(state, "has a different number of parts");
    for (auto [part, found] : llvm::zip_equal(*wanted, *parts)) {
      const json::Object *one = found.getAsObject();
      if (!one)
        return refuse(state, "has an invalid part");
      if (!is(*one, "start", list(part.start)) || !is(*one, "size", list(part.size)) || !source(part.source, *one))
        return false;
    }
    return true;
  }

  /// Frequencies must be equal to the bit.
  bool table(RopeTableOp op) {
    const json::Object *entry = entryFor(op, "constants");
    json::Array frequencies;
    for (float frequency : op.getInvFreq())
      frequencies.push_back(frequency);
    return entry && tensor(op, op.getValue(), *entry, true) &&
           is(*entry, "kind", op.getKind() == TableKind::Cos ? "rope_cos" : "rope_sin") &&
           is(*entry, "inv_freq", std::move(frequencies)) && is(*entry, "scale", op.getScale().convertToDouble());
  }

  /// Checks that every leaf has its entry, in the program's order, and that there are no other entries.
  bool leaves() {
    bool ok = true;
    planned.walk([&](Operation *op) {
      if (!ok)
        return;
      if (auto leaf = dyn_cast<ParameterOp>(op)) {
        byName[leaf.getName()] = leaf;
        ok = parameter(leaf);
      } else if (auto leaf = dyn_cast<StateOp>(op)) {
        const json::Object *entry = entryFor(op, leaf.getCache() ? "caches" : "states");
        ok = entry && tensor(leaf, leaf.getValue(), *entry, true) && is(*entry, "name", leaf.getName()) &&
             is(*entry, leaf.getCache() ? "of" : "parameter", leaf.getParameter()) && partsOfState(leaf, *entry);
      } else if (auto leaf = dyn_cast<InputOp>(op)) {
        const json::Object *entry = entryFor(op, "inputs");
        StringRef kind = stringifyInputKind(leaf.getKind());
        ok =
            entry && tensor(leaf, leaf.getValue(), *entry, true) && is(*entry, "name", leaf.getName().value_or(kind)) &&
            is(*entry, "kind", kind) && group(leaf.getGroupAttr(), *entry) &&
            is(*entry, "below",
               leaf.getBelow() ? json::Value(static_cast<int64_t>(*leaf.getBelow())) : json::Value(nullptr)) &&
            is(*entry, "key", leaf.getKey() ? json::Value(static_cast<int64_t>(*leaf.getKey())) : json::Value(nullptr));
      } else if (auto leaf = dyn_cast<RopeTableOp>(op)) {
        ok = table(leaf);
      }
    });
    return ok && isWhole("parameters") && isWhole("states") && isWhole("inputs") && isWhole("constants") &&
           (!generates || isWhole("caches"));
  }

  bool isWhole(StringRef key) {
    const json::Array *entries = object.getArray(key);
    return (entries && entries->size() == taken[key]) || refuse(planned, "has different '" + key + "'");
  }

  /// Checks that every output has its entry, in the order of their numbers.
  bool shown(ArrayRef<Operation *> outputs) {
    for (Operation *op : outputs) {
      const json::Object *entry = entryFor(op, "outputs");
      if (auto choice = dyn_cast<TopKOp>(op)) {
        if (!entry || !tensor(choice, choice.getResult(), *entry, false) || !is(*entry, "kind", "routing") ||
            !is(*entry, "layer", static_cast<int64_t>(*choice.getLayer())) ||
            !is(*entry, "chosen", static_cast<int64_t>(choice.getK())))
          return false;
        continue;
      }
      auto output = cast<OutputOp>(op);
      auto shape = cast<RankedTensorType>(output.getValue().getType()).getShape();
      ArrayRef<int64_t> valid = output.getValid()    ? *output.getValid()
                                : output.getGlobal() ? *output.getGlobal()
                                                     : shape;
      if (!entry || !tensor(output, output.getValue(), *entry, false) ||
          !is(*entry, "kind", stringifyOutputKind(output.getKind())) || !is(*entry, "name", output.getName()) ||
          !is(*entry, "valid", list(valid)))
        return false;
    }
    return isWhole("outputs");
  }

  ModuleOp planned;
  const json::Object &object;
  bool generates = false;  ///< the program has caches
  Operation *at = nullptr; ///< the op that is being compared
  llvm::StringMap<size_t> taken;
  llvm::StringMap<ParameterOp> byName;
  int64_t imported = 0; ///< the number of imported parameters so far
};

} // namespace

/// A description that is not JSON is an error like any other difference.
bool pc::describes(ModuleOp planned, StringRef description, ArrayRef<Operation *> outputs) {
  auto parsed = json::parse(description);
  if (!parsed)
    llvm::consumeError(parsed.takeError());
  else if (const json::Object *object = parsed->getAsObject())
    return Reader(planned, *object).program(outputs);
  planned.emitError() << "the executable's description is not a JSON object";
  return false;
}
