//===- Seconds.cpp - Placements that take the least time ------------------------------------===//
// In the place of bytes on the wire, a choice costs seconds of a machine: what a rank computes, what it sends along the
// axis and what earlier axes send, and a price per byte of the parameters, gradients and states that it keeps.
//
// Sums of gradients run during the backward pass, and so cost only the time that exceeds it, which is not a sum of
// tables. Let A be all seconds but those of sums, R those of sums, B those of one backward pass, which lose a share c
// of hidden moves. A step takes F = A + c R + (1 - c) max(0, R - B), and that is the greatest A - (s - c) B + s R of
// all s from c to 1. For one s, this is a sum of tables, whose minimum bounds F of all placements. Bisection finds the
// s at which R meets B; the best placement on the way is taken. Where sums are longer at s = 1, or shorter at s = c, it
// is the best there is; else `gap` says how far off it can be.
//===-----------------------------------------------------------------------------===//
#include "PlacementProblem.h"

#include "pc/IR/Liveness.h"

using namespace mlir;
using namespace pc;

static constexpr int wholly = 1024; ///< parts of `MoveTerms::exposed`

/// Whether the moves of `value` sum a gradient: values that `pc.accumulate` yields, except the loss, and values
/// computed from them.
bool PlacementProblem::isSumOfGradients(unsigned value) const {
  const PlacementValue &v = graph.values[value];
  if (cast<RankedTensorType>(v.value.getType()).getRank() == 0)
    return false;
  const PlacementNode &producer = graph.nodes[v.producer];
  if (producer.kind == NodeKind::Yield || (producer.kind == NodeKind::Move && gradient[producer.operands[0]]))
    return true;
  return v.section == Section::Backward && !v.readers.empty() &&
         llvm::all_of(v.readers, [&](auto reader) { return graph.nodes[reader.first].kind == NodeKind::Yield; });
}

/// Bytes of `value` on a rank that has it in `state`.
double PlacementProblem::elementBytes(unsigned value, AxisState state) const {
  return static_cast<double>(valueTerms[value].bytes) / static_cast<double>(state.isSplit() ? size : 1);
}

/// A move over an earlier axis: what it sends of a value that is split over this one.
double PlacementProblem::earlierMoveSeconds(const PlacementNode &node, const Row &row) const {
  auto move = cast<MoveOpInterface>(node.op);
  if (!hasTraffic(move.getMoveKind()))
    return 0;
  // Types of a placed program have the sizes of all ranks together.
  double wire = static_cast<double>(trafficOf(move, mesh).wire) * elementBytes(node.results[0], row.results[0]) /
                static_cast<double>(byteSize(graph.values[node.results[0]].value.getType()));
  return moveSeconds(move.getMoveKind(), wire, mesh, move.getMoveAxes(), seeds.times->machine);
}

/// Seconds of one execution of a node. A product reads its operands and writes its result; an op that is none is fused
/// with the one before, so it writes only; the optimizer reads all it works on.
double PlacementProblem::ownSeconds(const PlacementNode &node, const Row &row) const {
  if (node.kind == NodeKind::Move)
    return earlierMoveSeconds(node, row);
  if (node.kind != NodeKind::Compute || isVersion(node))
    return 0;
  FactorRule part = node.rule;
  SmallVector<int64_t> others(part.factors.size(), 1);
  double read = 0, written = 0;
  auto visit = [&](unsigned value, ArrayRef<int> dims, AxisState state, double &bytes) {
    bytes += elementBytes(value, state);
    for (auto [d, factor] : llvm::enumerate(dims))
      others[factor] = std::max(others[factor], otherSplits(value, d));
  };
  for (auto [value, dims, state] : llvm::zip(node.operands, node.rule.operands, row.operands))
    visit(value, dims, state, read);
  for (auto [value, dims, state] : llvm::zip(node.results, node.rule.results, row.results))
    visit(value, dims, state, written);
  for (auto [f, factor] : llvm::enumerate(part.factors))
    factor.size /= others[f] * (static_cast<int>(f) == row.factor ? size : 1);
  bool reads = flopsOf(node.op) > 0 || node.section == Section::Optimizer;
  return secondsOfPart(node.op, part, written + (reads ? read : 0), seeds.times->machine);
}

/// The share of a node's seconds during which sums of gradients cost nothing.
double PlacementProblem::hiddenShare(const PlacementNode &node) const {
  double hidden = exposed / static_cast<double>(wholly) - seeds.times->machine.contendShare;
  return node.kind == NodeKind::Compute && node.section == Section::Backward ? std::max(0.0, hidden) : 0;
}

/// Bytes of a leaf on a rank: a trained parameter also has a gradient.
double PlacementProblem::leafBytes(const PlacementNode &node, AxisState state) const {
  if (!isa<ParameterOp, StateOp>(node.op))
    return 0;
  auto parameter = dyn_cast<ParameterOp>(node.op);
  return (parameter && !parameter.getFrozen() ? 2 : 1) * elementBytes(node.results[0], state);
}

/// Seconds of a node itself: leaves by their bytes, sums of gradients as far as they are exposed.
Price PlacementProblem::ownTimes(const PlacementNode &node, const Row &row) const {
  if (node.kind == NodeKind::Leaf)
    return Price::seconds(seeds.times->perByte * leafBytes(node, row.results[0]));
  if (node.results.empty())
    return {};
  const PlacementValue &v = graph.values[node.results[0]];
  bool sums = node.kind == NodeKind::Move && gradient[node.results[0]];
  double share = sums ? exposed / static_cast<double>(wholly) : 1;
  return Price::seconds(ownSeconds(node, row) * (static_cast<double>(v.times) * share - hiddenShare(node)));
}

/// Has sums of gradients cost `parts` of `wholly` parts of their seconds.
void PlacementProblem::setExposed(int parts) {
  exposed = parts;
  for (auto [value, terms] : llvm::enumerate(valueTerms))
    if (gradient[value])
      terms.exposed = parts;
}

/// Sums are those of moves that the program has; the caller adds those of moves that the placement inserts.
PlacementProblem::Judgement PlacementProblem::judge() const {
  Judgement judged;
  for (auto [id, node] : llvm::enumerate(graph.nodes)) {
    const Row &row = this->row(id);
    if (node.kind == NodeKind::Compute && node.section == Section::Backward)
      judged.backward += ownSeconds(node, row);
    if (node.kind == NodeKind::Move && gradient[node.results[0]])
      judged.sums += ownSeconds(node, row) * static_cast<double>(graph.values[node.results[0]].times);
    if (node.kind == NodeKind::Leaf)
      judged.bytes += leafBytes(node, row.results[0]);
  }
  return judged;
}

std::optional<Assignment> PlacementProblem::minimizeSeconds() {
  gradient.resize(graph.values.size());
  for (unsigned value = 0; value < graph.values.size(); ++value)
    gradient[value] = isSumOfGradients(value);
  const double contend = seeds.times->machine.contendShare, perByte = seeds.times->perByte;
  // Not 0, at which all sums would be as good as none.
  int least = std::clamp(static_cast<int>(contend * wholly), 1, wholly), most = wholly;
  std::optional<Assignment> best;
  double bestPrice = 0, bound = 0;
  int bestParts = wholly;
  for (int round = 0, parts = most; round < 8; ++round) {
    setExposed(parts);
    std::optional<Assignment> one = minimizeTables();
    if (!one || !one->price.isLegal())
      return one;
    chosen = one->choice;
    Judgement judged = judge();
    double share = parts / static_cast<double>(wholly), price = one->price.seconds();
    for (unsigned value = 0; value < graph.values.size(); ++value)
      if (gradient[value])
        judged.sums += movePrice(value, produced(value), needed(value)).seconds() / share;
    double others = price - share * judged.sums + (share - contend) * judged.backward;
    bound = std::max(bound, price);
    price = others + contend * judged.sums + (1 - contend) * std::max(0.0, judged.sums - judged.backward);
    if (!best || price < bestPrice) {
      best = std::move(one);
      bestPrice = price;
      bestParts = parts;
      result.seconds = price - perByte * judged.bytes;
      result.bytes = judged.bytes;
    }
    bool longer = judged.sums > judged.backward;
    if (bestPrice <= bound * (1 + 1e-6) || (round == 0 && longer) || (round == 1 && !longer))
      break;
    if (round > 1)
      (longer ? least : most) = parts;
    parts = round == 0 ? least : (least + most) / 2;
  }
  setExposed(bestParts);
  result.gap = bestPrice > 0 ? std::max(0.0, 1 - bound / bestPrice) : 0;
  return best;
}
