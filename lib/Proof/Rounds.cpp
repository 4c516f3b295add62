//===- Rounds.cpp - Places of values in rounds of rows --------------------------------------===//
// Experts may process their rows in rounds of at most `limit` rows. A round has some entries of the mask. If the values
// of each round are zero at all other entries, the result is the sum over all rounds. A round is recorded as a block on
// a separate axis (`roundAxis`), so that the rules of partial sums also prove that no round is missing or counted
// twice.
//===-----------------------------------------------------------------------------===//
#include "Place.h"

#include <array>

using namespace mlir;
using namespace pc;
using namespace pc::proof;

/// A mask of the rows of one round has the place of the mask, and a note of its number and the number of rounds.
std::optional<Placed> Placer::roundOf(RoundOfRowsOp round, const Where &mask) {
  if (!mask.parts.empty() || mask.note.kind != Note::None || mask.root) {
    refuse("takes a round of a mask that is not complete: " + text(mask));
    return std::nullopt;
  }
  Placed placed;
  placed.isSame = true;
  Where &part = placed.results.emplace_back(mask);
  Index index;
  index.n = static_cast<int64_t>(round.getRounds());
  index.terms = {{{roundAxis}, static_cast<int64_t>(round.getLimit())}};
  index.constant = static_cast<int64_t>(round.getRound());
  // Rounds divide the rows of a rank's block, so rounds of differently placed blocks cannot be combined.
  if (auto lies = static_cast<int64_t>(masks.try_emplace(mask.dims, masks.size()).first->second))
    index.terms.push_back({{roundAxis, roundAxis}, lies});
  if (index.n > 1)
    part.note = {Note::Round, {}, static_cast<int64_t>(mask.dims.size()), {index}, true};
  return placed;
}

/// Handles an op on entries of a round. The result has the same entries or, if the other entries are 0, it is an addend
/// of a sum over entries.
bool Placer::keepRound(Operation *op, const Rule &rule, ArrayRef<const Where *> operands, Placed &placed) {
  const Note *round = nullptr;
  Rule::Letters entry;
  auto einsum = dyn_cast<EinsumOp>(op);
  bool isZero = false, areZero = !rule.linear.empty();
  for (auto [i, letters] : llvm::enumerate(rule.operands)) {
    const Note &note = operands[i]->note;
    bool has = note.kind == Note::Round;
    if (llvm::is_contained(rule.linear, i))
      areZero &= has && note.isZero;
    if (!has)
      continue;
    Rule::Letters front(ArrayRef<int>(letters).take_front(note.number));
    if (round && (note.blocks != round->blocks || front != entry))
      return refuse("reads values of two different rounds of routed tokens");
    round = &note;
    entry = front;
    isZero |= note.isZero;
  }
  // Rows are stored one after another, in the order of the mask's entries.
  for (auto [i, letters] : llvm::enumerate(rule.operands))
    if (bool isMask = einsum && einsum.getMask() && i + 1 == rule.operands.size();
        round && hasRows(op) && (isMask || rowsOf(op->getOperand(i))) && operands[i]->note.kind != Note::Round)
      return refuse("reads routed tokens of one round together with routed tokens of the whole mask");
  if (!round)
    return true;
  if (!einsum && !op->hasTrait<Pointwise>())
    return refuse("reads values of only one round of routed tokens");
  for (auto [letters, result, value] : llvm::zip_equal(rule.results, placed.results, op->getResults())) {
    if (ArrayRef<int>(letters).take_front(entry.size()) == ArrayRef<int>(entry)) {
      result.note = {Note::Round, {}, round->number, round->blocks, (einsum ? isZero : areZero) && !rowsOf(value)};
      continue;
    }
    // A result without the entry's dims has summed over them: it is an addend of the sum of all rounds.
    if (!einsum || !isZero || (result.combine != Combine::None && result.combine != Combine::Sum))
      return refuse("sums values of one round, although other rounds may have nonzero values");
    result.parts.push_back({AxisSet(1) << roundAxis, false, round->blocks});
    llvm::sort(result.parts);
    result.combine = Combine::Sum;
  }
  return true;
}

/// Rounds are added like values of ranks: each round is an addend on the axis `roundAxis`, and all rounds together are
/// the complete sum.
std::optional<Placed> Placer::addRounds(AddOp sum, ArrayRef<const Where *> operands) {
  // Entries of several rounds that are 0 elsewhere are addends.
  std::array<Where, 2> addends{*operands[0], *operands[1]};
  for (auto [operand, addend] : llvm::zip_equal(sum->getOperands(), addends))
    if (addend.note.kind == Note::Round && addend.note.isZero && !rowsOf(operand) &&
        (addend.combine == Combine::None || addend.combine == Combine::Sum)) {
      addend.parts.push_back({AxisSet(1) << roundAxis, false, addend.note.blocks});
      llvm::sort(addend.parts);
      addend.combine = Combine::Sum;
      addend.note = {};
    }
  return compute(sum, {&addends[0], &addends[1]});
}
