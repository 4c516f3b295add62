//===- Dispatch.cpp - Recognizes dispatch to experts and its inverse -----------------------===//
// Recognizes, by the factors of an einsum and its mask, the einsums that copy tokens to (token, expert) entries, and
// those that combine entries to tokens. The mask's last dim is that of experts; the other dims are those of tokens.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/Dispatch.h"

using namespace mlir;
using namespace pc;

bool pc::areOfTokens(ArrayRef<int> dims, ArrayRef<int> mask) {
  return dims.size() == mask.size() && dims.drop_back() == mask.drop_back() && dims.back() != mask.back();
}
bool pc::areOfEntries(ArrayRef<int> dims, ArrayRef<int> mask) {
  return dims.size() == mask.size() + 1 && dims.take_front(mask.size()) == mask;
}

using OfMask = bool(ArrayRef<int> dims, ArrayRef<int> mask);

/// A routed einsum of one value and the mask, which keeps the last dim of the value.
static bool brings(EinsumOp op, OfMask *from, OfMask *to) {
  if (!op || !op.getMask() || op.getInputs().size() != 2)
    return false;
  FactorRule rule = op.getFactorRule();
  ArrayRef<int> value = rule.operands[0], mask = rule.operands[1], result = rule.results[0];
  return from(value, mask) && to(result, mask) && value.back() == result.back();
}

bool pc::isDispatch(EinsumOp op) { return brings(op, areOfTokens, areOfEntries); }
bool pc::isCombine(EinsumOp op) { return brings(op, areOfEntries, areOfTokens); }
