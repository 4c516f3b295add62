//===- Rows.cpp - The rows that a node may choose from on one axis -------------------------===//
// Starts from legalRows and removes rows that split a dim that the seeds do not name or that the axis does not divide.
// Then it applies three policies: (a) a dim that must be split is split; (b) mask and pad, whose results are zeros on
// other ranks, are used only for an addend of a real partial sum, because otherwise the search would emulate a
// forbidden split by padding with zeros; (c) an op that reads a value twice does not read it partial once and whole
// once.
//===-----------------------------------------------------------------------------===//
#include "PlacementProblem.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Codes.h"

using namespace mlir;
using namespace pc;

/// The key in leafNodes of a parameter or state, and of its update.
std::string PlacementProblem::leafKey(StringRef name, std::optional<StringRef> parameter) {
  return parameter ? (name + " of " + *parameter).str() : name.str();
}

int64_t PlacementProblem::otherSplits(unsigned value, int64_t dim) const {
  PlaceAttr place = placement(graph.values[value].value);
  return mesh.size(place.axes(dim)); // never contains this axis, which is not in use yet
}

bool PlacementProblem::divides(unsigned value, int64_t dim) const {
  auto type = cast<RankedTensorType>(graph.values[value].value.getType());
  if (StringAttr name = graph.values[value].names[dim]; isCode(type.getElementType()) && name && name == nameOfCodes)
    return false; // groups stay whole
  return type.getDimSize(dim) % (size * otherSplits(value, dim)) == 0;
}

namespace {
/// A value with tokens and experts: its dim of experts, and the share of its entries that exist.
struct Routed {
  int dim;
  double share;
};
} // namespace

/// Describes results of routed einsums, and values that elementwise ops or moves compute from them.
static std::optional<Routed> routedOf(const PlacementGraph &graph, const PlacementValue &v,
                                      ArrayRef<std::optional<Routed>> known) {
  const PlacementNode &node = graph.nodes[v.producer];
  auto einsum = node.op ? dyn_cast<EinsumOp>(node.op) : EinsumOp();
  if (node.kind == NodeKind::Compute && einsum && einsum.getMask()) {
    ArrayRef<int> mask = node.rule.operands.back(), result = node.rule.results[0];
    if (result.size() <= mask.size() || result.take_front(mask.size()) != mask)
      return std::nullopt;
    double most = static_cast<double>(node.rule.factors[mask.back()].size);
    return Routed{static_cast<int>(mask.size()) - 1, std::min(1.0, static_cast<double>(*einsum.getRouted()) / most)};
  }
  bool passes = node.kind == NodeKind::Move || (node.kind == NodeKind::Compute && node.op->hasTrait<Pointwise>());
  if (!passes || node.operands.empty() ||
      !llvm::all_of(node.operands, [&](unsigned operand) { return known[operand].has_value(); }))
    return std::nullopt;
  return known[node.operands[0]];
}

/// Reads the terms that determine which moves of each value are possible and what they cost: bytes, times, dims that
/// the axis divides, sums over earlier axes.
void PlacementProblem::readTerms() {
  std::vector<std::optional<Routed>> routed(graph.values.size());
  for (auto [id, v] : llvm::enumerate(graph.values)) {
    auto type = cast<RankedTensorType>(v.value.getType());
    PlaceAttr place = placement(type);
    MoveTerms terms;
    terms.times = v.times;
    terms.sum = place.getKind() == PartialKind::Sum;
    terms.max = place.getKind() == PartialKind::Max;
    int64_t count = 1;
    for (auto [d, extent] : llvm::enumerate(type.getShape())) {
      count *= extent / otherSplits(id, d);
      bool minorEnd = llvm::none_of(
          place.axes(d), [&](StringAttr other) { return seeds.order.isMajor(seeds.axis, other, v.names[d]); });
      if (minorEnd && divides(id, d))
        terms.dims |= uint64_t(1) << d;
    }
    elements.push_back(count);
    terms.bytes = llvm::divideCeil(count * type.getElementTypeBitWidth(), 8);
    terms.fixed = seeds.fixed(v);
    if (std::optional<Routed> of = routed[id] = routedOf(graph, v, routed)) {
      terms.experts = of->dim;
      terms.rowBytes = static_cast<int64_t>(static_cast<double>(terms.bytes) * of->share);
    }
    valueTerms.push_back(terms);
    pins.push_back(v.rest ? seeds.pin(v) : std::nullopt);
    if (pins.back() && pins.back()->isSplit() && !divides(id, pins.back()->dim()))
      refused.push_back({id, pins.back()->dim()});
  }
}

/// Finds the choices of every node, in program order, since the choices of a reader depend on the states in which its
/// operands can be produced.
LogicalResult PlacementProblem::chooseRows() {
  rows.resize(graph.nodes.size());
  mayBePartial.resize(graph.values.size());
  for (auto [id, node] : llvm::enumerate(graph.nodes)) {
    LogicalResult chosen = success();
    if (node.kind == NodeKind::Leaf)
      chosen = leafRows(id);
    else if (node.kind == NodeKind::Update)
      chosen = updateRows(id);
    else if (node.kind == NodeKind::Output)
      outputRows(id);
    else
      factorRows(id);
    if (failed(chosen))
      return failure();
    for (auto [i, value] : llvm::enumerate(node.results))
      mayBePartial[value] =
          !pins[value] && llvm::any_of(rows[id], [&](const Row &row) { return row.results[i].isSum(); });
  }
  if (!refused.empty())
    return indivisible(refused[0].first, refused[0].second);
  return success();
}

/// Emits an error with the sizes that would work.
InFlightDiagnostic PlacementProblem::indivisible(unsigned value, int64_t dim) const {
  const PlacementValue &v = graph.values[value];
  auto type = cast<RankedTensorType>(v.value.getType());
  Operation *op = graph.nodes[v.producer].op;
  int64_t extent = type.getDimSize(dim), others = otherSplits(value, dim), unit = size * others;
  InFlightDiagnostic diagnostic = op->emitError() << seeds.tactic << ": " << describe(op) << ": dim ";
  if (v.names[dim])
    diagnostic << v.names[dim] << " ";
  else
    diagnostic << dim << " ";
  diagnostic << "of size " << extent << " in " << withEncoding(type, {})
             << (isa<EncodeOp, DecodeOp>(op) ? " (scales of blocks, which are never split)" : "")
             << " does not divide by " << seeds.axis.getValue() << "=" << size;
  if (others > 1)
    diagnostic << " (and by " << others << " on other axes)";
  diagnostic << "; nearest legal sizes of the dim: ";
  if (extent / unit)
    diagnostic << extent / unit * unit << " and ";
  diagnostic << (extent / unit + 1) * unit;
  return diagnostic;
}

/// A leaf is in a state that the tactic allows, if the axis divides its dims.
LogicalResult PlacementProblem::leafRows(unsigned id) {
  const PlacementNode &node = graph.nodes[id];
  unsigned value = node.results[0];
  SmallVector<AxisState, 2> states = seeds.leaf(node.op);
  for (AxisState state : states)
    if (!state.isSplit() || divides(value, state.dim()))
      rows[id].push_back(Row{{}, {state}, -1});
  if (rows[id].empty())
    return indivisible(value, states[0].dim());
  if (auto parameter = dyn_cast<ParameterOp>(node.op))
    leafNodes[leafKey(parameter.getName(), std::nullopt)] = id;
  if (auto state = dyn_cast<StateOp>(node.op))
    leafNodes[leafKey(state.getName(), state.getParameter())] = id;
  return success();
}

/// An update reads the new value in any state that its leaf may have; tieUpdates makes the two states equal.
LogicalResult PlacementProblem::updateRows(unsigned id) {
  auto update = cast<UpdateOp>(graph.nodes[id].op);
  auto it = leafNodes.find(leafKey(update.getName(), update.getParameter()));
  if (it == leafNodes.end())
    return update.emitError() << seeds.tactic << ": updates '" << leafKey(update.getName(), update.getParameter())
                              << "', but no parameter or state of that name is defined before it";
  for (const Row &row : rows[it->second])
    rows[id].push_back(Row{{row.results[0]}, {}, -1});
  return success();
}

/// Returns true if an op is so cheap that its operands may stay partial, although the op could be split.
static bool isCheapLinear(const PlacementNode &node) {
  if (auto einsum = dyn_cast<EinsumOp>(node.op))
    return einsum.getInputs().size() == 1;
  return isLinearMap(node.op) || isa<AccumulateOp, YieldOp>(node.op);
}

/// An output reads its value in any state except partial. Every rank knows the tokens that are generated.
void PlacementProblem::outputRows(unsigned id) {
  const PlacementNode &node = graph.nodes[id];
  const PlacementValue &v = graph.values[node.operands[0]];
  rows[id] = {Row{{AxisState::whole()}, {}, -1}};
  if (cast<OutputOp>(node.op).getKind() == OutputKind::Generated)
    return;
  for (auto [d, name] : llvm::enumerate(v.names))
    if (seeds.allows(node.section, name) && divides(node.operands[0], d))
      rows[id].push_back(Row{{AxisState::split(d)}, {}, -1});
  if (seeds.rooted)
    rows[id].push_back(Row{{AxisState::root()}, {}, -1});
}

/// Returns true if `node` only copies or rounds: it is a copy, the cast of a weight, or encodes one. Then its results
/// have the placement of its operand. The largest magnitude of a weight, which decides the scale of its codes, is
/// computed where the weight is.
bool PlacementProblem::isVersion(const PlacementNode &node) const {
  if (isa<MaxMagnitudeOp, ReduceMaxOp>(node.op)) {
    Value x = origin(node.op->getOperand(0));
    if (auto first = x.getDefiningOp<MaxMagnitudeOp>())
      x = first.getX();
    return isa_and_nonnull<ParameterOp, StateOp>(source(x).getDefiningOp());
  }
  return isa<CopyOp>(node.op) || (roundsOperand(node.op) && isWeight(graph.values[node.operands[0]]));
}

/// Returns true if `seeds.must` applies to this node.
bool PlacementProblem::isBound(const PlacementNode &node) const {
  return !node.operands.empty() && node.kind != NodeKind::Move && node.kind != NodeKind::Argument && !isVersion(node) &&
         !seeds.only.count(node.section) &&
         llvm::any_of(node.results, [&](unsigned value) { return seeds.binds(graph.values[value]); });
}

/// Returns true if the seeds allow the axis on all dims of `factor`, and the axis divides all of them. A dim that must
/// be split but cannot be divided is added to `refused`.
bool PlacementProblem::isSplittable(const PlacementNode &node, int factor) {
  bool must = false;
  std::optional<std::pair<unsigned, int64_t>> indivisible;
  auto move = node.kind == NodeKind::Move ? cast<MoveOpInterface>(node.op) : MoveOpInterface();
  auto visit = [&](unsigned value, ArrayRef<int> dims) {
    for (auto [d, f] : llvm::enumerate(dims)) {
      if (f != factor)
        continue;
      StringAttr name = graph.values[value].names[d];
      bool allowed = isVersion(node) || (move ? seeds.allowsAnywhere(name) : seeds.allows(node.section, name));
      if (!allowed || (name && !seeds.splits(graph.values[value], d)))
        return false;
      // A move over another axis changes the minor end of a dim's list of axes, so this axis must be major to it.
      if (move && (static_cast<int64_t>(d) == move.getMoveDim() || static_cast<int64_t>(d) == move.getOtherDim()))
        for (StringAttr other : move.getMoveAxes())
          if (!seeds.order.isMajor(seeds.axis, other, name))
            return false;
      if (divides(value, d))
        continue;
      // Indivisible dims are remembered, not refused at once: only a dim that must be split is an error.
      indivisible = indivisible.value_or(std::pair(value, static_cast<int64_t>(d)));
      must |= name && seeds.must.contains(name);
    }
    return true;
  };
  for (auto [value, dims] : llvm::zip(node.operands, node.rule.operands))
    if (!visit(value, dims))
      return false;
  for (auto [value, dims] : llvm::zip(node.results, node.rule.results))
    if (!visit(value, dims))
      return false;
  if (indivisible && must && isBound(node))
    refused.push_back(*indivisible);
  return !indivisible;
}

/// The legal rows of the op's rule, without those that the tactic's names and pins forbid.
void PlacementProblem::factorRows(unsigned id) {
  const PlacementNode &node = graph.nodes[id];
  auto isRooted = [](AxisState state) { return state.isRoot(); };
  for (Row &row : legalRows(node.rule))
    if ((row.factor < 0 || isSplittable(node, row.factor)) && (seeds.rooted || llvm::none_of(row.results, isRooted)))
      rows[id].push_back(std::move(row));
  // A pin on a result of pc.accumulate is the state of the accumulator, so every microbatch adds in that state.
  if (node.kind == NodeKind::Yield && pins[node.results[0]])
    llvm::erase_if(rows[id], [&](const Row &row) { return row.results[0] != *pins[node.results[0]]; });
  applyPolicies(id);
}

/// Drops legal rows that the policies (a) to (c) exclude.
void PlacementProblem::applyPolicies(unsigned id) {
  const PlacementNode &node = graph.nodes[id];
  bool einsum = isa<EinsumOp>(node.op);
  auto isMust = [&](int factor) {
    if (factor < 0)
      return false;
    auto named = [&](unsigned value, ArrayRef<int> dims) {
      for (auto [d, f] : llvm::enumerate(dims))
        if (f == factor && graph.values[value].names[d] && seeds.must.contains(graph.values[value].names[d]))
          return true;
      return false;
    };
    for (auto [value, dims] : llvm::zip(node.operands, node.rule.operands))
      if (named(value, dims))
        return true;
    for (auto [value, dims] : llvm::zip(node.results, node.rule.results))
      if (named(value, dims))
        return true;
    return false;
  };
  auto waits = [](const Row &row) { return llvm::any_of(row.operands, [](AxisState s) { return s.isSum(); }); };
  // If a row splits a dim that the tactic must split, the other rows are dropped, except that cheap ops may pass on a
  // partial sum.
  bool bound = isBound(node) && llvm::any_of(rows[id], [&](const Row &row) { return isMust(row.factor); });
  llvm::erase_if(rows[id], [&](const Row &row) {
    if (bound && !isMust(row.factor) && !(waits(row) && isCheapLinear(node)))
      return true;
    if (row.factor >= 0 || !waits(row))
      return false;
    bool any = false, all = true;
    for (auto [i, state] : llvm::enumerate(row.operands)) {
      unsigned value = node.operands[i];
      // x * x with x partial once and whole once would be correct, but needs both versions of x.
      for (auto [j, other] : llvm::enumerate(row.operands))
        if (node.operands[j] == value && other != state)
          return true;
      if (state.isSum()) {
        any |= mayBePartial[value];
        all &= mayBePartial[value];
      }
    }
    // A row with a partial result is useful only if the operands can be produced as partial sums.
    return einsum ? !all : !any;
  });
}
