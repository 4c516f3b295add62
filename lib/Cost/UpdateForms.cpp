//===- UpdateForms.cpp - Three ways to divide an optimizer's matrix products -----------------===//
// Input: a program after placement, with the stacks of pc-stack-updates. Result: for each set of connected products and
// each axis, the bytes that a rank sends and the time of moves and products for three forms: the axis divides nothing,
// a dim of the matrices, or the stack of matrices. Values keep their placement on other axes, in the order of the
// program's own moves. Each move is the cheapest one on this axis only. All products of a set have the same form here;
// in a program they may have different forms, and then its bytes differ. The solver (lib/Shard) has chosen the
// program's placement.
//===-----------------------------------------------------------------------------===//
#include "pc/Cost/Cost.h"
#include "pc/Cost/Report.h"
#include "pc/IR/Calls.h"
#include "pc/IR/DimClasses.h"
#include "pc/IR/Liveness.h"
#include "pc/IR/Stages.h"

#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include <cmath>

using namespace mlir;
using namespace pc;
namespace json = llvm::json;

namespace {

/// Connected products on stacks.
struct Products {
  SmallVector<StackOp> stacks;
  SmallVector<Operation *> ops; ///< ops that compute, without moves and stacks
  SmallVector<UnstackOp> unstacks;
};

/// The bytes that a rank sends per step, and the seconds of moves and products.
struct FormCost {
  double bytes = 0, seconds = 0;
};

/// The costs of some products on one axis.
class AxisForms {
public:
  AxisForms(Products &products, DimClasses &classes, StringAttr axis, MeshAttr mesh, const MachineModel &machine)
      : products(products), classes(classes), axis(axis), mesh(mesh), machine(machine), ranks(mesh.size(axis)) {}

  /// The costs of the three forms, and the form that the program has.
  json::Object describe() {
    auto toJson = [](std::optional<FormCost> cost) -> json::Value {
      if (!cost)
        return nullptr;
      return json::Object{{"wire_bytes", std::llround(cost->bytes)}, {"seconds", cost->seconds}};
    };
    unsigned owned = classes.classOf(products.stacks.front().getResult(), 0);
    std::optional<FormCost> sums;
    llvm::SetVector<unsigned> dims;
    for (StackOp stack : products.stacks)
      for (int64_t d = 1; d < stack.getResult().getType().getRank(); ++d)
        dims.insert(classes.classOf(stack.getResult(), d));
    for (unsigned dim : dims)
      if (std::optional<FormCost> one = cost(dim); one && (!sums || one->bytes < sums->bytes))
        sums = one;
    StackOp first = products.stacks.front();
    json::Array shape;
    llvm::append_range(shape, cast<RankedTensorType>(first.getInputs()[0].getType()).getShape());
    return json::Object{{"axis", axis.getValue()},
                        {"matrices", static_cast<int64_t>(first.getInputs().size())},
                        {"shape", std::move(shape)},
                        {"chosen", chosen()},
                        {"duplicated", toJson(cost(std::nullopt))},
                        {"gram_sums", toJson(sums)},
                        {"owners", toJson(cost(owned))}};
  }

private:
  /// The value before moves.
  static Value origin(Value value) {
    while (auto move = value.getDefiningOp<MoveOpInterface>())
      value = move->getOperand(0);
    return value;
  }

  bool isOnAxis(MoveOpInterface move) const { return llvm::is_contained(move.getMoveAxes(), axis); }

  /// The dim of a value that has the class; std::nullopt if there is no class or no such dim.
  std::optional<int64_t> dimOf(Value value, std::optional<unsigned> dim) {
    Value at = origin(value);
    for (int64_t d = 0; dim && d < cast<RankedTensorType>(at.getType()).getRank(); ++d)
      if (classes.classOf(at, d) == *dim)
        return d;
    return std::nullopt;
  }

  /// The ranks of other axes that split dim `d`.
  int64_t others(Value value, int64_t d) const {
    int64_t size = mesh.size(placement(value).axes(d));
    return placement(value).state(axis) == AxisState::split(d) ? size / ranks : size;
  }

  /// Bytes of the value on a rank, if it is whole on the axis.
  double bytesOf(Value value) const {
    auto bytes = static_cast<double>(byteSize(value.getType()));
    for (int64_t d = 0, e = cast<RankedTensorType>(value.getType()).getRank(); d < e; ++d)
      bytes /= static_cast<double>(others(value, d));
    return bytes;
  }

  /// The last move with traffic on the axis that leads to a value; null if there is none.
  MoveOpInterface moveTo(Value end) const {
    auto move = end.getDefiningOp<MoveOpInterface>();
    while (move && (!isOnAxis(move) || isa<SliceOp>(move)))
      move = move->getOperand(0).getDefiningOp<MoveOpInterface>();
    return move;
  }

  /// The moves of a value that are its only readers, one after another.
  static SmallVector<MoveOpInterface> movesFrom(Value value) {
    SmallVector<MoveOpInterface> moves;
    while (value.hasOneUse())
      if (auto move = dyn_cast<MoveOpInterface>(*value.user_begin()))
        value = moves.emplace_back(move)->getResult(0);
      else
        break;
    return moves;
  }

  /// Bytes on a rank of the operand of a move on the axis, if the operand is whole on the axis. A gather over several
  /// axes gathers minor axes first, which are last in its list.
  double bytesOfMove(MoveOpInterface move) const {
    auto axes = move.getMoveAxes();
    auto minor = ArrayRef<StringAttr>(axes).drop_front(llvm::find(axes, axis) - axes.begin() + 1);
    return bytesOf(move->getOperand(0)) * static_cast<double>(isa<AllGatherOp>(move) ? mesh.size(minor) : 1);
  }

  /// The bytes on a rank of the values that moves over the axis carry between the placement of the parameters and the
  /// products, if these values are whole on the axis. The program's own move (possibly of the entries) shows how other
  /// axes split them. The zeros at the end of a stack are sent only to owners.
  double bytesMovedBefore(StackOp stack, Value version, bool toOwners) const {
    MoveOpInterface own = moveTo(version), ofEntry = moveTo(stack.getInputs()[0]);
    double bytes = own       ? bytesOfMove(own)
                   : ofEntry ? bytesOfMove(ofEntry) * lengthOf(stack.getResult())
                             : bytesOf(version);
    return bytes * (toOwners ? 1 : static_cast<double>(stack.getInputs().size()) / lengthOf(stack.getResult()));
  }
  double bytesMovedAfter(UnstackOp unstack, bool fromOwners) const {
    SmallVector<MoveOpInterface> moves = movesFrom(unstack.getResult());
    const auto *move =
        llvm::find_if(moves, [&](MoveOpInterface each) { return isOnAxis(each) && !isa<SliceOp>(each); });
    MoveOpInterface own = moveTo(unstack.getStack());
    double length = lengthOf(unstack.getStack());
    double bytes = own                   ? bytesOfMove(own)
                   : move != moves.end() ? bytesOfMove(*move) * length
                                         : bytesOf(unstack.getStack());
    auto entries = llvm::count_if(
        products.unstacks, [&](UnstackOp other) { return origin(other.getStack()) == origin(unstack.getStack()); });
    return bytes * (fromOwners ? 1 : static_cast<double>(entries) / length);
  }

  /// The number of matrices in a stack, with its zeros.
  static double lengthOf(Value stack) {
    return static_cast<double>(cast<RankedTensorType>(stack.getType()).getDimSize(0));
  }

  /// Whether the class may be split: values have it at most once, and the axis divides it.
  bool isSplittable(unsigned dim) {
    auto fits = [&](Value value) {
      auto type = cast<RankedTensorType>(value.getType());
      int64_t count = 0;
      for (int64_t d = 0; d < type.getRank(); ++d)
        if (classes.classOf(value, d) == dim && (++count > 1 || type.getDimSize(d) % (ranks * others(value, d))))
          return false;
      return true;
    };
    return llvm::all_of(products.stacks, [&](StackOp stack) { return fits(stack.getResult()); }) &&
           llvm::all_of(products.ops, [&](Operation *op) { return llvm::all_of(op->getResults(), fits); });
  }

  /// Adds a move of a value that has `bytes` on a rank if it is whole.
  void addMove(FormCost &cost, MoveKind kind, double bytes) const {
    auto n = static_cast<double>(ranks);
    double wire = bytes * (n - 1) / n;
    wire *= kind == MoveKind::AllReduce ? 2 : kind == MoveKind::AllToAll ? 1 / n : 1;
    cost.bytes += wire;
    cost.seconds += moveSeconds(kind, wire, mesh, {axis}, machine);
  }

  /// Adds the move between two splits of a value; a whole one is split without traffic.
  void change(FormCost &cost, double bytes, std::optional<int64_t> from, std::optional<int64_t> to) const {
    if (from && from != to)
      addMove(cost, to ? MoveKind::AllToAll : MoveKind::AllGather, bytes);
  }

  /// The dim of the stack of `entry` that the axis splits before, or after, all moves of the entry.
  std::optional<int64_t> splitOf(Value entry) const {
    AxisState state = placement(entry).state(axis);
    return state.isSplit() ? std::optional(state.dim() + 1) : std::nullopt;
  }
  std::optional<int64_t> splitBefore(StackOp stack) const { return splitOf(origin(stack.getInputs()[0])); }
  std::optional<int64_t> splitAfter(UnstackOp unstack) const {
    SmallVector<MoveOpInterface> moves = movesFrom(unstack.getResult());
    return splitOf(moves.empty() ? Value(unstack.getResult()) : moves.back()->getResult(0));
  }

  /// The cost of the products if the axis splits dims of the class; std::nullopt: if it splits nothing.
  std::optional<FormCost> cost(std::optional<unsigned> dim) {
    if (dim && !isSplittable(*dim))
      return std::nullopt;
    FormCost sum;
    llvm::DenseMap<Value, Value> read; // for each stack, the version that products read
    for (Operation *op : products.ops)
      for (Value operand : op->getOperands())
        read.try_emplace(origin(operand), operand);
    for (StackOp stack : products.stacks)
      if (Value version = read.lookup(stack.getResult())) {
        std::optional<int64_t> to = dimOf(stack.getResult(), dim);
        change(sum, bytesMovedBefore(stack, version, to == 0), splitBefore(stack), to);
      }
    for (Operation *op : products.ops)
      addProduct(sum, op, dim);
    llvm::DenseSet<Value> done;
    for (UnstackOp unstack : products.unstacks)
      if (Value result = origin(unstack.getStack()); done.insert(result).second) {
        std::optional<int64_t> from = dimOf(result, dim);
        change(sum, bytesMovedAfter(unstack, from == 0), from, splitAfter(unstack));
      }
    return sum;
  }

  /// Adds a product of which each rank computes a part, and the sum of the parts if they are addends.
  void addProduct(FormCost &cost, Operation *op, std::optional<unsigned> dim) {
    if (flopsOf(op) == 0)
      return;
    FactorRule rule = cast<FactorOpInterface>(op).getFactorRule();
    int split = -1;
    double bytes = 0;
    SmallVector<int64_t> divisors(rule.factors.size(), 1);
    auto visit = [&](ValueRange values, ArrayRef<SmallVector<int, 6>> all) {
      for (auto [value, factors] : llvm::zip(values, all)) {
        std::optional<int64_t> own = dimOf(value, dim);
        bytes += bytesOf(value) / static_cast<double>(own ? ranks : 1);
        if (own)
          split = factors[*own];
        for (auto [d, factor] : llvm::enumerate(factors))
          divisors[factor] = std::max(divisors[factor], others(value, static_cast<int64_t>(d)));
      }
    };
    visit(op->getOperands(), rule.operands);
    visit(op->getResults(), rule.results);
    for (auto [factor, divisor] : llvm::zip(rule.factors, divisors))
      factor.size /= divisor;
    if (split >= 0)
      rule.factors[split].size /= ranks;
    cost.seconds += secondsOfPart(op, rule, bytes, machine);
    if (split >= 0 && !llvm::is_contained(rule.results[0], split))
      addMove(cost, MoveKind::AllReduce, bytesOf(op->getResult(0)));
  }

  /// The form of most of the program's products.
  StringRef chosen() {
    std::map<StringRef, double> flops;
    for (Operation *op : products.ops) {
      StringRef form = "duplicated";
      for (Value operand : op->getOperands())
        if (AxisState state = placement(operand).state(axis); state.isSplit())
          form = state.dim() ? "gram_sums" : "owners";
      flops[form] += flopsOf(op);
    }
    return std::max_element(flops.begin(), flops.end(), [](auto &a, auto &b) { return a.second < b.second; })->first;
  }

  Products &products;
  DimClasses &classes;
  StringAttr axis;
  MeshAttr mesh;
  const MachineModel &machine;
  int64_t ranks;
};

} // namespace

/// The stacks of a step and what is computed from them, by connected ops.
static SmallVector<Products> findProducts(func::FuncOp step) {
  llvm::EquivalenceClasses<Operation *> connected;
  SmallVector<Operation *> ops; // in program order
  for (Operation &op : step.getBody().front()) {
    bool isPart = isa<StackOp>(op);
    for (Value operand : op.getOperands())
      if (Operation *from = operand.getDefiningOp();
          from && !isa<UnstackOp>(from) && connected.contains(from) && !isa<StackOp>(op)) {
        connected.unionSets(from, &op);
        isPart = true;
      }
    if (isPart) {
      connected.insert(&op);
      ops.push_back(&op);
    }
  }
  llvm::MapVector<Operation *, Products> found;
  for (Operation *op : ops) {
    Products &one = found[connected.getLeaderValue(op)];
    if (auto stack = dyn_cast<StackOp>(op))
      one.stacks.push_back(stack);
    else if (auto unstack = dyn_cast<UnstackOp>(op))
      one.unstacks.push_back(unstack);
    else if (!isa<MoveOpInterface>(op))
      one.ops.push_back(op);
  }
  return llvm::map_to_vector(found, [](auto &one) { return std::move(one.second); });
}

json::Array pc::updateForms(ModuleOp placed, ArrayRef<std::string> axes, const MachineModel &machine) {
  SmallVector<std::pair<json::Object, json::Array>> rows; // rows, with the stages that have them
  auto add = [&](json::Object row, ModuleOp program) {
    auto *same = llvm::find_if(rows, [&](const auto &other) { return other.first == row; });
    if (same == rows.end())
      same = &rows.emplace_back(std::move(row), json::Array());
    if (program != placed)
      same->second.push_back(stageOf(program));
  };
  for (ModuleOp program : programsOf(placed)) {
    MeshAttr mesh = meshOf(program);
    for (func::FuncOp step : stepsOf(program)) {
      DimClasses classes(step);
      for (Products &products : findProducts(step))
        for (StringAttr axis : mesh ? mesh.getNames() : ArrayRef<StringAttr>())
          // A tactic may have divided its axis in two, such as tp.0 and tp.1.
          if (mesh.size(axis) > 1 && llvm::is_contained(axes, axis.getValue().split('.').first))
            add(AxisForms(products, classes, axis, mesh, machine).describe(), program);
    }
  }
  json::Array all;
  for (auto &[row, stages] : rows) {
    if (!stages.empty())
      row["stages"] = std::move(stages);
    all.push_back(std::move(row));
  }
  return all;
}
