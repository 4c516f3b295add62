//===- Seconds.cpp - Placements that take the least time ------------------------------------===//
// In this file, the cost of a choice is seconds on a machine instead of bytes on the wire. A choice costs seconds for
// the ops that a rank computes, for the moves over the axis and over earlier axes, and for each byte of the parameters,
// gradients and states that the rank keeps.
//
// Sums of gradients run during the backward pass, so they cost only the time that exceeds it. This cost is not a sum of
// tables. Let R be the seconds of these sums, A all other seconds, and B the seconds of one backward pass, which hidden
// moves slow down by a share c of their seconds. A step takes F = A + c R + (1 - c) max(0, R - B), and that is the
// maximum of A - (s - c) B + s R over s from c to 1. For a fixed s, this is a sum of tables, whose minimum is a lower
// bound of F for all placements. Bisection finds the s at which R equals B, and keeps the best placement that it finds.
// If R > B at s = 1, or R < B at s = c, this placement is optimal; otherwise `gap` bounds how far from optimal it is.
//===-----------------------------------------------------------------------------===//
#include "PlacementProblem.h"

#include "pc/IR/Liveness.h"

using namespace mlir;
using namespace pc;

static constexpr int wholly = 1024; ///< the unit of `MoveTerms::exposed` is 1/1024

/// Returns true if `value` is a gradient that moves sum: a value that `pc.accumulate` yields, except the loss, or a
/// move of such a value.
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

/// Seconds of a move over an earlier axis, of a value that is split over this one.
double PlacementProblem::earlierMoveSeconds(const PlacementNode &node, const Row &row) const {
  auto move = cast<MoveOpInterface>(node.op);
  if (!hasTraffic(move.getMoveKind()))
    return 0;
  // Types of a placed program have global sizes.
  double wire = static_cast<double>(trafficOf(move, mesh).wire) * elementBytes(node.results[0], row.results[0]) /
                static_cast<double>(byteSize(graph.values[node.results[0]].value.getType()));
  return moveSeconds(move.getMoveKind(), wire, mesh, move.getMoveAxes(), seeds.times->machine);
}

/// The rule of an op with the sizes of the part that a rank computes.
FactorRule PlacementProblem::partOf(const PlacementNode &node, const Row &row) const {
  FactorRule part = node.rule;
  SmallVector<int64_t> others(part.factors.size(), 1);
  auto visit = [&](ArrayRef<unsigned> values, ArrayRef<SmallVector<int, 6>> all) {
    for (auto [value, dims] : llvm::zip(values, all))
      for (auto [d, factor] : llvm::enumerate(dims))
        others[factor] = std::max(others[factor], otherSplits(value, d));
  };
  visit(node.operands, node.rule.operands);
  visit(node.results, node.rule.results);
  for (auto [f, factor] : llvm::enumerate(part.factors))
    factor.size /= others[f] * (static_cast<int>(f) == row.factor ? size : 1);
  return part;
}

/// Seconds of one execution of a node. A product reads its operands and writes its result. Another op is fused with the
/// op before it, so it only writes. The optimizer reads and writes all its values.
double PlacementProblem::ownSeconds(const PlacementNode &node, const Row &row) const {
  if (node.kind == NodeKind::Move)
    return earlierMoveSeconds(node, row);
  if (node.kind != NodeKind::Compute || isVersion(node))
    return 0;
  double read = 0, written = 0;
  for (auto [value, state] : llvm::zip(node.operands, row.operands))
    read += elementBytes(value, state);
  for (auto [value, state] : llvm::zip(node.results, row.results))
    written += elementBytes(value, state);
  bool reads = flopsOf(node.op) > 0 || node.section == Section::Optimizer;
  return secondsOfPart(node.op, partOf(node, row), written + (reads ? read : 0), seeds.times->machine);
}

/// The share of a node's seconds that hides sums of gradients.
double PlacementProblem::hiddenShare(const PlacementNode &node) const {
  double hidden = exposed / static_cast<double>(wholly) - seeds.times->machine.contendShare;
  return node.kind == NodeKind::Compute && node.section == Section::Backward ? std::max(0.0, hidden) : 0;
}

/// Bytes of a leaf on a rank, including the gradient of a trained parameter.
double PlacementProblem::leafBytes(const PlacementNode &node, AxisState state) const {
  if (!isa<ParameterOp, StateOp>(node.op))
    return 0;
  auto parameter = dyn_cast<ParameterOp>(node.op);
  return (parameter && !parameter.getFrozen() ? 2 : 1) * elementBytes(node.results[0], state);
}

/// Seconds of a node without moves: the price of the bytes for leaves, and the exposed part for sums of gradients.
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

/// Counts only `parts` / `wholly` of the seconds of gradient sums. Backward ops hide the rest.
void PlacementProblem::setExposed(int parts) {
  exposed = parts;
  for (auto [value, terms] : llvm::enumerate(valueTerms))
    if (gradient[value])
      terms.exposed = parts;
}

/// `sums` includes only moves that the program already has; the caller adds the moves that the placement inserts.
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

/// Bisects over the exposed share of the gradient sums (see the file header). Each step solves one sum of tables. The
/// largest of their minima is the lower bound for `gap`.
std::optional<Assignment> PlacementProblem::minimizeSeconds() {
  gradient.resize(graph.values.size());
  for (unsigned value = 0; value < graph.values.size(); ++value)
    gradient[value] = isSumOfGradients(value);
  const double contend = seeds.times->machine.contendShare, perByte = seeds.times->perByte;
  // The least share is not 0, because then sums of gradients would cost nothing.
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
    // `others` is A in the file's comment, and `price` becomes F.
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
    // If R > B, the maximum over s is at a larger s.
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
