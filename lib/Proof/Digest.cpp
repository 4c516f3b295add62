//===- Digest.cpp - Digests and fingerprints as text -----------------------------------------===//
// A program has two kinds of hashes: a digest of its text or structure, which any change alters, and a fingerprint of
// what it computes, which all phases keep. A module contains the fingerprint of the step program from which it was
// made, so that a later compilation can prove the module without its step program.
//===-----------------------------------------------------------------------------===//
#include "pc/Proof/Digest.h"
#include "Walk.h"

#include "pc/IR/Calls.h"
#include "pc/IR/MoveRows.h"
#include "pc/IR/Rounds.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"

using namespace mlir;
using namespace pc;
using namespace pc::proof;

std::string pc::digestOf(StringRef bytes) {
  return llvm::toHex(llvm::BLAKE3::hash<16>(llvm::arrayRefFromStringRef(bytes)), /*LowerCase=*/true);
}

namespace {

/// Hashes a program without printing it. Types and attributes are printed at their first use; later uses, and all uses
/// of values, are numbers. Equal programs have equal digests, also in other MLIR contexts and at other addresses.
class Writer {
public:
  void add(uint64_t number) { hash.update(ArrayRef(reinterpret_cast<const uint8_t *>(&number), sizeof number)); }
  void add(StringRef text) {
    add(text.size());
    hash.update(text);
  }

  template <typename T> void addOnce(T what, llvm::DenseMap<T, uint64_t> &seen) {
    auto [it, isNew] = seen.try_emplace(what, seen.size());
    add(it->second);
    if (!isNew)
      return;
    std::string text;
    llvm::raw_string_ostream(text) << what;
    add(text);
  }
  void add(Type type) { addOnce(type, types); }
  void add(Attribute attribute) { addOnce(attribute, attributes); }

  /// Values are numbered in order; their names do not matter.
  void define(Value value) {
    values.try_emplace(value, values.size());
    add(value.getType());
  }

  /// Adds the name of an op, its attributes, the numbers of its operands, and its regions.
  void add(Operation *op) {
    add(op->getName().getStringRef());
    for (StringAttr name : op->getName().getAttributeNames())
      if (std::optional<Attribute> value = op->getInherentAttr(name); value && *value) {
        add(name);
        add(*value);
      }
    for (NamedAttribute attribute : op->getDiscardableAttrs()) {
      add(attribute.getName());
      add(attribute.getValue());
    }
    add(op->getNumOperands());
    for (Value operand : op->getOperands())
      add(values.lookup(operand));
    add(op->getNumResults());
    llvm::for_each(op->getResults(), [&](Value result) { define(result); });
    add(op->getNumSuccessors());
    add(op->getNumRegions());
    for (Region &region : op->getRegions())
      add(region);
  }

  /// The number of arguments and an end mark keep neighbouring regions apart.
  void add(Region &region) {
    for (Block &block : region) {
      add(block.getNumArguments());
      llvm::for_each(block.getArguments(), [&](Value argument) { define(argument); });
      for (Operation &op : block)
        add(&op);
    }
    add("end");
  }

  std::string end() { return llvm::toHex(hash.final<16>(), /*LowerCase=*/true); }

private:
  llvm::BLAKE3 hash;
  llvm::DenseMap<Type, uint64_t> types;
  llvm::DenseMap<Attribute, uint64_t> attributes;
  llvm::DenseMap<Value, uint64_t> values;
};

} // namespace

/// Leaves out pc.plan, because the digest is about what is computed.
std::string pc::digestOf(ModuleOp program) {
  Writer writer;
  for (Operation &op : *program.getBody())
    if (!isa<PlanOp>(op))
      writer.add(&op);
  return writer.end();
}

/// The digest of a program's printed text, so that explicit and default attributes are equal. It leaves out the path of
/// weights, which may change, and the attributes of the module itself.
static std::string digestOfText(ModuleOp module) {
  SmallVector<std::pair<ProgramOp, StringAttr>> places;
  module.walk([&](ProgramOp program) { places.emplace_back(program, program.getWeightsAttr()); });
  for (auto [program, weights] : places)
    program.removeWeightsAttr();
  DictionaryAttr says = module->getDiscardableAttrDictionary();
  module->setDiscardableAttrs(DictionaryAttr::get(module.getContext()));
  std::string text;
  llvm::raw_string_ostream os(text);
  module->print(os, OpPrintingFlags().enableDebugInfo(false).printGenericOpForm(false).useLocalScope(false));
  module->setDiscardableAttrs(says);
  for (auto [program, weights] : places)
    if (weights)
      program.setWeightsAttr(weights);
  return digestOf(text);
}

/// An imported model has a digest, so one without a digest counts as edited. Any other program without a digest may or
/// may not have been edited.
std::optional<bool> pc::wasEdited(ModuleOp module) {
  if (auto noted = module->getAttrOfType<StringAttr>(digestAttribute))
    return noted.getValue() != digestOfText(module);
  bool isOfModel = false;
  module.walk([&](ProgramOp program) { isOfModel |= program.getConfig().contains("\"model_type\""); });
  return isOfModel ? std::optional(true) : std::nullopt;
}

void pc::noteDigest(ModuleOp module, bool edited) {
  module->setAttr(digestAttribute, StringAttr::get(module.getContext(), edited ? "edited" : digestOfText(module)));
}

/// Writes the fields that the runtime's table of moves has, so that an executable can be compared with the list.
static std::string textOf(MoveOpInterface move) {
  auto from = cast<RankedTensorType>(move->getOperand(0).getType());
  pcrt_move_shape shape = moveShape(move);
  auto axes = [](ArrayRef<StringAttr> names) {
    return llvm::join(llvm::map_range(names, [](StringAttr axis) { return axis.getValue(); }), ",");
  };
  Type element = from.getElementType();
  auto ofRows = dyn_cast<AllToAllRowsOp>(*move);
  int64_t shift = ofRows ? static_cast<int64_t>(ofRows.getRouted()) : move.getMoveShift();
  bool isMax = shape.back || move.getReduction() == PartialKind::Max;
  std::string text;
  llvm::raw_string_ostream os(text);
  os << moveName(move.getMoveKind()) << " on " << axes(move.getMoveAxes()) << " "
     << (element.isF32()    ? "f32"
         : element.isBF16() ? "bf16"
                            : ("i" + Twine(std::max(element.getIntOrFloatBitWidth(), 8U))).str())
     << " " << shape.outer << "x" << shape.extent << "x" << shape.inner << "x" << shape.middle << "x" << shape.extent2
     << (isMax ? " 1" : " 0") << " shift " << shift << " with " << axes(move.getMoveWith());
  return text;
}

/// The moves at the end of a round of local SGD are not in `program`, so they are built for this list.
std::vector<std::string> pc::collectivesOf(ModuleOp program) {
  std::vector<std::string> order;
  TaskFunctions functions;
  std::function<void(Block &)> add = [&](Block &block) {
    for (Operation &op : block) {
      if (auto move = dyn_cast<MoveOpInterface>(op))
        order.push_back(textOf(move));
      if (auto call = dyn_cast<CallOp>(op))
        add(*functions.of(call).body);
      for (Region &region : op.getRegions())
        for (Block &inner : region)
          add(inner);
    }
  };
  for (func::FuncOp step : stepsOf(program))
    add(step.getBody().front());
  if (OwningOpRef<func::FuncOp> round = buildRound(program))
    add(round->getBody().front());
  return order;
}

static StringRef textOf(StringAttr name) { return name.getValue(); }

/// The entries of a map, sorted by the text of their keys.
template <typename Map> static auto sorted(const Map &facts) {
  std::vector<std::pair<std::string, decltype(&facts.begin()->second)>> list;
  for (const auto &[name, fact] : facts)
    list.emplace_back(textOf(name), &fact);
  llvm::sort(list);
  return list;
}

/// Three hashes: of the leaves, of the updates and of the outputs.
static std::array<std::string, 3> sinksOf(const Facts &facts) {
  std::string leaves, updates, outputs;
  llvm::raw_string_ostream leaf(leaves), update(updates), output(outputs);
  leaf << facts.about << "\n";
  for (const auto &[name, known] : sorted(facts.leaves)) {
    const Facts::Leaf &says = *known;
    leaf << name << " " << says.number << " " << says.element;
    llvm::for_each(says.shape, [&](int64_t size) { leaf << " " << size; });
    llvm::for_each(says.says, [&](Attribute one) { leaf << " " << one; });
    leaf << "\n";
  }
  for (const auto &[name, value] : sorted(facts.updates))
    update << name << " " << value->x << " " << value->y << "\n";
  for (const auto &[name, values] : sorted(facts.outputs)) {
    std::set<std::pair<uint64_t, uint64_t>> points;
    for (const Facts::Output &one : *values)
      points.insert({one.value.x, one.value.y});
    for (auto [x, y] : points)
      output << name << " " << x << " " << y << "\n";
  }
  return {digestOf(leaves).substr(0, 16), digestOf(updates).substr(0, 16), digestOf(outputs).substr(0, 16)};
}

std::string pc::proof::fingerprintOf(const Facts &facts, StringRef seed) {
  auto [leaves, updates, outputs] = sinksOf(facts);
  return (seed + "-" + leaves + "-" + updates + "-" + outputs).str();
}

StringRef pc::proof::seedOf(StringRef fingerprint) { return fingerprint.split('-').first; }

/// The fingerprint's parts after the seed are for leaves, updates and outputs.
std::string pc::proof::whatDiffers(StringRef one, StringRef other) {
  static constexpr StringRef names[] = {"its inputs, parameters and states", "its updates", "its outputs"};
  SmallVector<StringRef> a, b, different;
  one.split(a, '-');
  other.split(b, '-');
  for (auto [i, name] : llvm::enumerate(names))
    if (i + 1 >= a.size() || i + 1 >= b.size() || a[i + 1] != b[i + 1])
      different.push_back(name);
  return llvm::join(different, " and ");
}
