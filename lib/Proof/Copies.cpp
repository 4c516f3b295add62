//===- Copies.cpp - Sums over dims that no operand has --------------------------------------===//
// If a value does not depend on an index, its sum over that index is the value times a number of copies. In a local
// program, each rank has one copy for each element in its block of the index. The proof does not know how ranks divide
// the index, and does not need to.
//===-----------------------------------------------------------------------------===//
#include "Place.h"

using namespace mlir;
using namespace pc;
using namespace pc::proof;

/// Handles an op that reduces dim `f`, on whose index no operand depends. A sum is the value at one index times their
/// number; a maximum is the value itself. Sets the scale, and the split of `dim` if types give it. Otherwise all ranks
/// have copies.
bool Placer::sumCopies(Operation *op, const Rule &rule, int f, Dim &dim, double &scale, bool &copies) {
  auto einsum = dyn_cast<EinsumOp>(op);
  if (!isa<ReduceMaxOp>(op) && (!einsum || einsum.getMask()))
    return isReference;
  for (auto [value, letters] : llvm::zip(op->getOperands(), rule.operands)) {
    const auto *at = llvm::find(letters, f);
    if (at == letters.end())
      continue;
    if (einsum)
      scale *= static_cast<double>(cast<RankedTensorType>(value.getType()).getShape()[at - letters.begin()]);
    if (PlaceAttr place = placement(value)) {
      std::optional<Where> said = read(axis, place, letters.size());
      if (!said)
        return false;
      dim = said->dims[at - letters.begin()];
    } else {
      copies = true;
    }
    return true;
  }
  return false;
}

/// Adds an incomplete sum, of which each rank has an addend, and a value that sums copies. Since every rank adds the
/// value of copies, this value is multiplied by the number of ranks.
bool Placer::addCopies(Operation *op, ArrayRef<const Where *> operands, ArrayRef<unsigned> partial, Placed &placed) {
  if (!isa<AddOp, SubOp>(op) || partial.size() != 1 || operands[partial[0]]->combine != Combine::Sum ||
      !operands[1 - partial[0]]->copies)
    return false;
  double ranks = 1;
  for (const PartialSum &part : operands[partial[0]]->parts) {
    if (part.inner || part.in.size() != 1 || !part.in[0].n)
      return false;
    ranks *= static_cast<double>(part.in[0].n);
  }
  placed.scales = {{1 - partial[0], ranks}};
  return true;
}
