//===- Copies.cpp - Sums over dims that no operand has --------------------------------------===//
// A value that does not depend on an index, summed over that index, is a value times a number of copies. In local
// programs each rank has as many as its block of the index; how ranks divide the index is not known, and need not be.
//===-----------------------------------------------------------------------------===//
#include "Place.h"

using namespace mlir;
using namespace pc;
using namespace pc::proof;

/// An op that reduces dim `f`, on whose index no operand depends. A sum is that of one index times their number, and a
/// maximum that of one. Sets the scale, and the split of `dim` if types say it; else all ranks have copies.
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

/// A sum of which each rank has an addend, and a value that sums copies: added on each rank, it counts as often as
/// there are ranks.
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
