//===- Sinks.cpp - Compares leaves and sinks with the one-device program -----------------===//
// Copies of a parameter on several stages are equal at every step: they are drawn with the same key, and each step
// updates all of them with the same value.
//===-----------------------------------------------------------------------------===//
#include "Walk.h"

#include "pc/IR/Parts.h"
#include "pc/IR/Rounds.h"
#include "pc/IR/Stages.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;
using namespace pc::proof;

/// Returns true if an attribute of a leaf or an output describes this rank's block, which may differ between programs.
static bool isOfRank(Operation *op, StringRef name) {
  return name == "global" || name == "layout" || (name == "key" && !isa<InputOp>(op));
}

/// The name of a leaf for messages. Leaves without a name are described by their attributes.
std::string pc::proof::textOf(LeafName name) {
  auto [own, of] = name;
  if (auto all = dyn_cast<ArrayAttr>(own)) {
    std::string text = cast<StringAttr>(all[0]).str();
    for (Attribute one : all.getValue().drop_front())
      llvm::raw_string_ostream(text) << " " << one;
    return text;
  }
  StringRef text = cast<StringAttr>(own).getValue();
  return (of ? text + " of '" + cast<StringAttr>(of).getValue() + "'" : "'" + text + "'").str();
}

/// Parameters and states have names; inputs, tables and constants are identified by their attributes.
static LeafName nameOfLeaf(Operation *op) {
  if (auto parameter = dyn_cast<ParameterOp>(op))
    return {parameter.getNameAttr(), {}};
  if (auto state = dyn_cast<StateOp>(op))
    return {state.getNameAttr(), state.getParameterAttr()};
  SmallVector<Attribute> says{StringAttr::get(op->getContext(), op->getName().stripDialect())};
  for (StringAttr name : op->getName().getAttributeNames())
    if (std::optional<Attribute> value = op->getInherentAttr(name); value && *value && !isOfRank(op, name))
      says.push_back(*value);
  return {ArrayAttr::get(op->getContext(), says), {}};
}

/// The operand number of a state in its optimizer op; -1: none.
static int slotOf(Value state) {
  for (OpOperand &use : state.getUses()) {
    if (isa<AdamWOp, SGDOp>(use.getOwner()))
      return static_cast<int>(use.getOperandNumber());
    if (auto fusion = dyn_cast<FusionOp>(use.getOwner()))
      return slotOf(fusion.getBody().getArgument(use.getOperandNumber()));
  }
  return -1;
}

/// The layout and the global shape that a leaf or an output states.
template <typename Op> static std::pair<PlaceAttr, DenseI64ArrayAttr> statedBlock(Op op, Value value) {
  return {op.getLayout() ? *op.getLayout() : placement(value), op.getGlobalAttr()};
}

static ArrayRef<int64_t> shapeOf(Value value, DenseI64ArrayAttr global) {
  return global ? global.asArrayRef() : cast<RankedTensorType>(value.getType()).getShape();
}

/// The placement of a leaf or an output by its attributes; null if they do not fit.
const Where *Walk::placeOf(Value value, PlaceAttr layout, DenseI64ArrayAttr global) {
  const Where *&known = placesOfLeaves[{withEncoding(value.getType(), placement(value)), layout, global}];
  if (known)
    return known;
  std::optional<Where> where = placer.leaf(value, layout, shapeOf(value, global));
  return known = where ? shared.intern(std::move(*where)) : nullptr;
}

/// Counts parameters in program order, as the importer numbers them; a packed one counts as often as it has parts.
int64_t Walk::positionOf(Stage &stage, ParameterOp parameter) {
  if (stage.positions.empty()) {
    int64_t position = 0; // a packed parameter counts as its parts
    stage.step.walk([&](ParameterOp op) {
      stage.positions[op] = position;
      position += numParts(op);
    });
  }
  return stage.positions.lookup(parameter);
}

/// With an arena, leaves are read when the step begins. Otherwise each is read at its op. The reference must have the
/// same leaf, with the same attributes, and the value gets a fingerprint drawn from its name.
bool Walk::leaf(Stage &stage, Operation *op) {
  if (stage.arena >= 0 && !stage.inKernel)
    return true; // present from the start
  if (auto state = dyn_cast<StateOp>(op); state && isOfRounds(state) && op->use_empty())
    return true; // a state for the end of a round, on which the step does not depend
  Value value = op->getResult(0);
  std::pair<PlaceAttr, DenseI64ArrayAttr> block;
  llvm::TypeSwitch<Operation *>(op).Case<ParameterOp, StateOp, InputOp, RopeTableOp>(
      [&](auto leaf) { block = statedBlock(leaf, value); });
  auto &[layout, global] = block;
  // The attributes of a leaf, except those that each rank decides, must be the same in every stage and in the
  // reference.
  LeafName name = nameOfLeaf(op);
  Facts::Leaf says;
  llvm::append_range(says.shape, shapeOf(value, global));
  says.element = cast<RankedTensorType>(value.getType()).getElementType();
  for (StringAttr attribute : op->getName().getAttributeNames())
    if (!isOfRank(op, attribute))
      if (std::optional<Attribute> said = op->getInherentAttr(attribute))
        says.says.push_back(*said);
  // The number of a parameter selects its random numbers. A stage has only some of the parameters, so it needs keys.
  if (auto parameter = dyn_cast<ParameterOp>(op)) {
    if (stageAxis && !parameter.getKey())
      return refuse(op, "is a parameter of a pipeline stage, but has no key", FaultKind::Data);
    says.number = parameter.getKey() ? static_cast<int64_t>(*parameter.getKey()) : positionOf(stage, parameter);
  }
  if (!reference) {
    says.slot = slotOf(value);
    says.value = values.named({"leaf", textOf(name)});
    auto [own, isNew] = facts.leaves.try_emplace(name, says);
    if (!isNew && !(own->second == says))
      return refuse(op, "has different attributes than " + textOf(name) + " on another stage", FaultKind::Data);
  } else if (auto known = reference->leaves.find(name); known == reference->leaves.end()) {
    return refuse(op, "is not in the one-device program: " + textOf(name),
                  isa<RopeTableOp>(op) ? FaultKind::Scale : FaultKind::Data);
  } else if (known->second.number != says.number) {
    return refuse(op,
                  "draws the random numbers of parameter " + Twine(says.number) + ", but is parameter number " +
                      Twine(known->second.number),
                  FaultKind::Data);
  } else if (!(known->second == says)) {
    return refuse(op, "has different attributes than " + textOf(name) + " in the one-device program",
                  isa<RopeTableOp>(op) ? FaultKind::Scale : FaultKind::Data);
  } else {
    says.value = known->second.value;
  }
  const Where *where = placeOf(value, layout, global);
  if (!where)
    return refuse(op, placer.wrong);
  State state{says.value, where};
  if (isa<ParameterOp, StateOp>(op)) {
    auto [held, isNew] = stage.held.try_emplace(name, Held{op, state});
    if (Operation *other = held->second.leaf; !isNew && other != op) {
      bool isOther = reference && slotOf(value) == reference->leaves.find(name)->second.slot && isa<StateOp>(op);
      return refuse(isOther ? other : op, "is defined twice: " + textOf(name), FaultKind::Data);
    }
  }
  set(op, value, state);
  return true;
}

/// An update must be the only one of its leaf. Its value must have the leaf's place and, in planned programs, end in
/// the leaf's bytes.
bool Walk::update(Stage &stage, UpdateOp update) {
  LeafName name(update.getNameAttr(), update.getParameterAttr());
  State state = stateOf(update.getValue());
  if (!state.where || !read(stage, update, update.getValue(), state))
    return refuse(update, "uses a value before it is computed", FaultKind::Memory);
  auto it = stage.held.find(name);
  if (it == stage.held.end())
    return refuse(update, "updates a parameter or state that its program does not have: " + textOf(name),
                  FaultKind::Update);
  Held &held = it->second;
  if (std::exchange(held.updated, true))
    return refuse(update, "is the second update of " + textOf(name), FaultKind::Update);
  Value leaf = held.leaf->getResult(0);
  // The next step reads the new value through the leaf, so it must have the place of the leaf.
  const Where &old = *held.state.where, &now = *state.where;
  if (!now.parts.empty() || now.note.kind != Note::None || !now.agrees(old.dims) || (now.root & ~old.root) ||
      placer.localShape(update.getValue()) != placer.localShape(leaf))
    return refuse(update, "sets " + textOf(name) + ", which has placement " + old.text(axis.names()) +
                              ", to a value with placement " + now.text(axis.names()));
  // A reference has an update for each leaf, which this one must equal. Without it, the first update of a leaf becomes
  // the reference for the other stages.
  auto [known, isNew] = facts.updates.try_emplace(name, among(state));
  if (reference) {
    auto wanted = reference->updates.find(name);
    if (wanted == reference->updates.end() || wanted->second != among(state)) {
      if (wanted != reference->updates.end())
        failure.wanted = wanted->second;
      return refuse(update, "sets " + textOf(name) + " to a different value than the one-device program does",
                    FaultKind::Update);
    }
  } else if (!isNew && isStep) {
    return refuse(update, "is the second update of " + textOf(name), FaultKind::Update);
  } else if (known->second != among(state)) {
    return refuse(update, "sets " + textOf(name) + " to a different value than another stage does", FaultKind::Update);
  }
  if (stage.arena < 0)
    return true;
  stage.last[held.leaf] = state;
  // The update copies the value if it is not in the leaf's bytes already.
  std::optional<Range> from = rangeOf(stage, update, update.getValue()), to = rangeOf(stage, update, leaf);
  if (from != to)
    stage.bytes.write(*to, state);
  return true;
}

/// An output must have the place that it states, since the runtime uses it to assemble the parts of the ranks.
bool Walk::output(Stage &stage, OutputOp output) {
  State state = stateOf(output.getValue());
  if (!state.where || !read(stage, output, output.getValue(), state))
    return refuse(output, "uses a value before it is computed", FaultKind::Memory);
  auto [layout, global] = statedBlock(output, output.getValue());
  const Where *said = placeOf(output.getValue(), layout, global);
  if (!said)
    return refuse(output, placer.wrong);
  if (!state.where->parts.empty() || state.where->note.kind != Note::None || !state.where->agrees(said->dims) ||
      (state.where->root & ~said->root))
    return refuse(output, "outputs a value with placement " + state.where->text(axis.names()) +
                              " as if its placement were " + said->text(axis.names()));
  llvm::SmallString<128> name;
  llvm::raw_svector_ostream text(name);
  text << stringifyOutputKind(output.getKind()) << " '" << output.getName() << "'";
  for (int64_t size : shapeOf(output.getValue(), global))
    text << " " << size;
  if (output.getValid())
    text << " " << output.getValidAttr();
  shown.push_back({output, StringAttr::get(output.getContext(), name), state});
  return show(shown.back());
}

/// The runtime reads and may replace the chosen experts, so it must know the place of the value.
bool Walk::isShownWhereItLies(TopKOp choice, const Where &where) {
  const Where *said = placeOf(choice.getResult(), *choice.getLayout(), choice.getGlobalAttr());
  if (!said)
    return refuse(choice, placer.wrong);
  return (where.parts.empty() && where.note.kind == Note::None && where.agrees(said->dims) &&
          where.root == said->root) ||
         refuse(choice, "outputs a value with placement " + where.text(axis.names()) + " as if its placement were " +
                            said->text(axis.names()));
}

/// Counts a value under the output's name; the reference must also show it.
bool Walk::show(const Shown &one) {
  Point value = among(one.state);
  auto isIt = [&](const Facts::Output &known) { return known.value == value; };
  SmallVector<Facts::Output, 1> &list = facts.outputs[one.name];
  auto *it = llvm::find_if(list, isIt);
  if (it == list.end())
    it = list.insert(it, {value, 0});
  ++it->count;
  if (!reference)
    return true;
  auto wanted = reference->outputs.find(one.name);
  if (wanted != reference->outputs.end() && llvm::any_of(wanted->second, isIt))
    return true;
  if (wanted != reference->outputs.end() && wanted->second.size() == 1)
    failure.wanted = wanted->second.front().value;
  return refuse(one.op, "outputs a different value than the one-device program as " + one.name.getValue(),
                OutputOp(one.op).getKind() == OutputKind::Gradient ? FaultKind::Update : FaultKind::Data);
}

/// Records the outputs of one microbatch also for another one.
bool Walk::showAgain(ArrayRef<Shown> others, int microbatch) {
  return llvm::all_of(others, [&](Shown one) {
    if (one.state.microbatch != State::ofAny)
      one.state.microbatch = microbatch;
    return show(one);
  });
}

/// Finds faults that no single op shows: updates and outputs that are missing or repeated.
bool Walk::compareSinks() {
  if (!reference)
    return true;
  Operation *program = stages.front()->step;
  for (const auto &[name, value] : reference->updates)
    if (!facts.updates.contains(name))
      return refuse(program, "never updates " + textOf(name), FaultKind::Update);
  for (const auto &[name, wanted] : reference->outputs)
    for (const Facts::Output &output : wanted) {
      int64_t count = 0;
      for (const Facts::Output &own : facts.outputs[name])
        count += own.value == output.value ? own.count : 0;
      if (count < 1 || count > output.count * static_cast<int64_t>(stages.size()))
        return refuse(program,
                      "shows " + name.getValue() + " " + Twine(count) + " times, but the one-device program shows it " +
                          Twine(output.count) + " times",
                      FaultKind::Update);
    }
  return true;
}
