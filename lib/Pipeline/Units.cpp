//===- Units.cpp - Finds the parts of a model that are never divided -------------------------===//
// Program order and source names determine where a layer and its second half begin, in the forward and in the backward
// pass.
//===-----------------------------------------------------------------------------===//
#include "StepTasks.h"

#include "pc/Cost/Cost.h"
#include "pc/IR/Layers.h"
#include "pc/IR/Liveness.h"

#include <set>

using namespace mlir;
using namespace pc;
using namespace pc::pipeline;

double pc::pipeline::localBytes(Value value, MeshAttr mesh) {
  double bytes = static_cast<double>(byteSize(value.getType()));
  if (PlaceAttr place = placement(value); place && mesh)
    for (int64_t d = 0, e = place.getDims().size(); d < e; ++d)
      bytes /= static_cast<double>(mesh.size(place.axes(d)));
  return bytes;
}

double pc::pipeline::secondsOnRank(Operation *op, MeshAttr mesh, const MachineModel &machine) {
  SmallVector<Value> values(op->getOperands());
  llvm::append_range(values, op->getResults());
  auto move = dyn_cast<MoveOpInterface>(op);
  if (move && hasTraffic(move.getMoveKind()) && mesh) {
    double most = 0, n = static_cast<double>(mesh.size(move.getMoveAxes()));
    for (Value value : values)
      most = std::max(most, localBytes(value, mesh));
    double rounds = move.getMoveKind() == MoveKind::AllReduce ? 2 : 1;
    return n < 2 ? 0 : moveSeconds(move.getMoveKind(), rounds * (n - 1) / n * most, mesh, move.getMoveAxes(), machine);
  }
  double parts = 1;
  for (Value value : values)
    if (double local = localBytes(value, mesh); local > 0)
      parts = std::max(parts, static_cast<double>(byteSize(value.getType())) / local);
  return move ? 0 : machine.opSeconds + (secondsOf(op, machine) - machine.opSeconds) / parts;
}

bool pc::pipeline::isUnaryLinear(Operation *op) { return isa<MoveOpInterface, CopyOp, CastOp, ResizeOp>(op); }

bool pc::pipeline::comesRound(Operation *op) {
  auto gather = dyn_cast<AllGatherOp>(op);
  return gather && gather.getDim() == 1 && zigzagRanks(op) &&
         llvm::all_of(op->getUsers(), llvm::IsaPred<AttentionOp, AttentionGradOp>);
}

namespace {

/// The part of a layer to which a name belongs, such as "h.3.attn" for "h.3.attn.c_attn:q"; empty outside of layers.
StringRef partOf(StringRef name) {
  StringRef layer = layerOf(name), rest = name.drop_front(layer.size());
  if (layer.empty() || !rest.consume_front("."))
    return "";
  return name.take_front(layer.size() + 1 + rest.take_until([](char c) { return c == '.' || c == ':'; }).size());
}

/// Finds the unit of each op. Moves and casts may have the name of either side, so they belong to the unit of their
/// operand.
class UnitFinder {
public:
  /// `ops` are the ops to cut. Leaves, and values computed only from leaves, come before `leavesEnd`.
  UnitFinder(SmallVector<Operation *> ops, Operation *leavesEnd, MeshAttr mesh, const MachineModel &machine)
      : ops(std::move(ops)), leavesEnd(leavesEnd), mesh(mesh), machine(machine) {}

  /// The forward pass gives units their names. The backward pass and the copies for recomputation then follow them.
  FailureOr<Units> run() {
    SmallVector<Operation *> forward, backward, again;
    for (Operation *op : ops)
      if (isa<SeedOp>(op) || !backward.empty())
        backward.push_back(op);
      else
        forward.push_back(op);
    // Copies of forward ops (pc-recompute) and ops on parameters are between the passes; they belong to their readers.
    llvm::DenseSet<Operation *> gradients;
    llvm::erase_if(backward, [&](Operation *op) {
      bool reached = isa<SeedOp>(op) || llvm::any_of(op->getOperands(), [&](Value value) {
                       return gradients.contains(value.getDefiningOp());
                     });
      reached ? (void)gradients.insert(op) : again.push_back(op);
      return !reached;
    });
    nameUnits(forward, again);
    if (failed(checkOrder(forward)))
      return failure();
    int head = static_cast<int>(units.names.size()) - 1;
    walk(forward, 0, head, [](int a, int b) { return std::max(a, b); });
    for (Operation *op : forward)
      if (int unit = units.unit[op];
          unit > 0 && unit < head && !isUnaryLinear(op) && !unitNumber(op) && !layerUnits(op))
        between[sourceName(op)] = unit;
    walk(backward, head, 0, [](int a, int b) { return std::min(a, b); });
    // The copies are visited in reverse order, since the readers of a copy can be copies themselves. Only the loss may
    // have no reader (pc-chunk-loss).
    for (Operation *op : llvm::reverse(again)) {
      int unit = 0; // the unit of the first reader
      for (Operation *user : op->getUsers())
        unit = std::max(unit, isa<YieldOp>(user) ? head : units.unit.lookup(user));
      units.unit[op] = unit;
    }
    units.seconds.resize(units.names.size());
    for (Operation *op : ops)
      units.seconds[units.unit[op]] += secondsOnRank(op, mesh, machine);
    countBytes(forward);
    return std::move(units);
  }

private:
  /// If a layer has four parts or more (norm, attention, norm, feed-forward), the third begins its second half. A layer
  /// that is made `again` from its input is one unit.
  void nameUnits(ArrayRef<Operation *> forward, ArrayRef<Operation *> again) {
    // Layers that are not divided into halves.
    std::set<std::string> whole;
    for (Operation *op : again)
      if (isa<EinsumOp>(op))
        whole.insert(layerOf(sourceName(op)).str());
    std::vector<std::string> layers; // in order
    std::map<std::string, std::vector<std::string>> partsOf;
    std::map<std::string, std::ptrdiff_t> latestPart;
    for (Operation *op : forward) {
      std::string name = sourceName(op), part = partOf(name).str(), layer = layerOf(name).str();
      if (isUnaryLinear(op) || part.empty())
        continue;
      std::vector<std::string> &parts = partsOf[layer];
      if (parts.empty())
        layers.push_back(layer);
      // The number of the part in its layer, in the order in which parts first occur.
      auto at = llvm::find(parts, part) - parts.begin();
      if (at == std::ssize(parts))
        parts.push_back(part);
      auto &latest = latestPart[layer];
      if (at < 2 && latest >= 2) // the ops of its halves are mixed
        whole.insert(layer);
      latest = std::max(latest, at);
    }
    auto begin = [&](const std::string &name, int layer) {
      units.names.push_back(name);
      units.layer.push_back(layer);
    };
    begin("embedding", 0);
    for (auto [layer, name] : llvm::enumerate(layers)) {
      auto first = static_cast<int>(units.names.size());
      for (auto [i, part] : llvm::enumerate(partsOf[name])) {
        if (i == 0 || (i == 2 && partsOf[name].size() >= 4 && !whole.count(name)))
          begin(part, static_cast<int>(layer) + 1);
        number[part] = static_cast<int>(units.names.size()) - 1;
      }
      ofLayer[name] = {first, static_cast<int>(units.names.size()) - 1};
    }
    begin("head", static_cast<int>(layers.size()) + 1);
  }

  /// A layer ends where the next one begins: ops of an earlier layer must not come after it.
  LogicalResult checkOrder(ArrayRef<Operation *> forward) const {
    Operation *last = nullptr;
    for (Operation *op : forward) {
      std::optional<int> unit = unitNumber(op);
      if (!unit)
        continue;
      if (last && units.layer[*unit] < units.layer[*unitNumber(last)]) {
        InFlightDiagnostic error = op->emitError()
                                   << "pc-pipeline-parallel: '" << op->getName() << "' op of layer '"
                                   << layerOf(sourceName(op)) << "' comes after layer '" << layerOf(sourceName(last))
                                   << "', but a pipeline needs the layers in order; move the op to its layer, or give "
                                      "it the name of the later layer";
        error.attachNote(last->getLoc()) << "this op is of layer '" << layerOf(sourceName(last)) << "'";
        return error;
      }
      last = op;
    }
    return success();
  }

  /// The number of the op's unit; std::nullopt if it belongs to no unit.
  std::optional<int> unitNumber(Operation *op) const {
    if (isUnaryLinear(op))
      return std::nullopt;
    std::string name = sourceName(op);
    if (auto it = between.find(name); it != between.end())
      return it->second;
    auto it = number.find(partOf(name).str());
    return it == number.end() ? std::nullopt : std::optional(it->second);
  }

  /// The first and the last unit of the op's layer; std::nullopt if it belongs to no layer.
  std::optional<std::pair<int, int>> layerUnits(Operation *op) const {
    auto it = ofLayer.find(layerOf(sourceName(op)).str());
    return isUnaryLinear(op) || it == ofLayer.end() ? std::nullopt : std::optional(it->second);
  }

  /// Assigns units in program order. An op without a name is in the unit of the op before it. So is an op with the name
  /// of a whole layer, if that unit belongs to the layer. Ops before all layers are in `first`, and ops after them are
  /// in `last`. If no op belongs to a layer, all are in `first`; this happens with frozen layers, for which the
  /// backward pass has only the head.
  void walk(ArrayRef<Operation *> ops, int first, int last, llvm::function_ref<int(int, int)> onward) {
    Operation *end = nullptr;
    for (Operation *op : ops)
      if (unitNumber(op))
        end = op;
    int now = first;
    bool isPastEnd = false;
    for (Operation *op : ops) {
      std::optional<int> unit = unitNumber(op);
      if (auto layer = layerUnits(op); layer && !unit)
        unit = first < last ? layer->first : layer->second;
      now = unit ? onward(now, *unit) : isPastEnd ? last : now;
      isPastEnd |= op == end;
      Operation *source = isUnaryLinear(op) ? op->getOperand(0).getDefiningOp() : nullptr;
      auto it = source ? units.unit.find(source) : units.unit.end();
      units.unit[op] = it != units.unit.end() ? it->second : now;
    }
  }

  /// Counts the bytes that a unit holds per microbatch for its backward pass, and the bytes of its parameters,
  /// gradients and states. A step that generates has no gradients, and its states are caches.
  void countBytes(ArrayRef<Operation *> forward) {
    units.held.resize(units.names.size());
    units.fixed.resize(units.names.size());
    llvm::DenseSet<Operation *> isForward(forward.begin(), forward.end());
    for (Operation *op : forward)
      for (Value value : op->getResults())
        // Values that ops of the backward pass read are held for it.
        if (llvm::any_of(value.getUsers(),
                         [&](Operation *user) { return !isForward.contains(user) && !isa<YieldOp>(user); }))
          if (spaceOf(value) == Space::Device)
            units.held[units.unit[op]] += localBytes(comesRound(op) ? op->getOperand(0) : value, mesh);
    // A parameter, and values computed from it outside of the body, belong to the units that read them.
    llvm::DenseMap<Value, double> bytes;
    std::map<std::string, double> states;
    for (auto state : leavesEnd->getBlock()->getOps<StateOp>())
      if (state.getCache())
        bytes[state.getValue()] = localBytes(state.getValue(), mesh);
      else if (spaceOf(state.getValue()) == Space::Device)
        states[state.getParameter().str()] += localBytes(state.getValue(), mesh);
    bool trains = bytes.empty();
    for (Operation *op = &leavesEnd->getBlock()->front(); op != leavesEnd; op = op->getNextNode()) {
      if (auto parameter = dyn_cast<ParameterOp>(op)) {
        bool isHere = spaceOf(parameter.getValue()) == Space::Device, hasGradient = !parameter.getFrozen() && trains;
        bytes[parameter.getValue()] =
            (isHere + hasGradient) * localBytes(parameter.getValue(), mesh) + states[parameter.getName().str()];
      } else if (auto carry = dyn_cast<CarryOp>(op); carry && bytes.count(carry.getX())) {
        bytes[carry.getResult()] = bytes[carry.getX()]; // it is on the device only while it is read
      } else if (op->getNumOperands() == 1 && op->getNumResults() == 1 && bytes.count(op->getOperand(0)) &&
                 !isForward.contains(op)) {
        bytes[op->getResult(0)] = bytes[op->getOperand(0)] + localBytes(op->getResult(0), mesh);
      }
    }
    // A parameter that several ops of a unit read counts once in the unit, but in every unit that reads it.
    std::set<std::pair<int, void *>> counted;
    for (Operation *op : forward)
      for (Value operand : op->getOperands())
        if (auto it = bytes.find(operand); it != bytes.end())
          if (counted.insert({units.unit[op], operand.getAsOpaquePointer()}).second)
            units.fixed[units.unit[op]] += it->second;
  }

  SmallVector<Operation *> ops;
  Operation *leavesEnd;
  MeshAttr mesh;
  const MachineModel &machine;
  Units units;
  std::map<std::string, int> number;                  ///< unit numbers, by part of a layer
  std::map<std::string, std::pair<int, int>> ofLayer; ///< first and last unit, by layer
  /// Maps the name of an op between layers, such as between an encoder and a decoder, to its unit. The gradient of the
  /// op belongs to the same unit.
  std::map<std::string, int> between;
};

} // namespace

FailureOr<Units> Units::find(AccumulateOp accumulate, MeshAttr mesh, const MachineModel &machine) {
  auto ops = llvm::map_to_vector(accumulate.getBody().front().without_terminator(), [](Operation &op) { return &op; });
  return UnitFinder(std::move(ops), accumulate, mesh, machine).run();
}

FailureOr<Units> Units::find(ArrayRef<Operation *> ops, MeshAttr mesh, const MachineModel &machine) {
  return UnitFinder(llvm::to_vector(ops), ops.front()->getBlock()->getTerminator(), mesh, machine).run();
}
