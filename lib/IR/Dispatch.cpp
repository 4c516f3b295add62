//===- Dispatch.cpp - What goes to experts and comes back ----------------------------------===//
#include "pc/IR/Dispatch.h"

using namespace mlir;
using namespace pc;

bool pc::areOfTokens(ArrayRef<int> dims, ArrayRef<int> mask) {
  return dims.size() == mask.size() && dims.drop_back() == mask.drop_back() && dims.back() != mask.back();
}
bool pc::areOfEntries(ArrayRef<int> dims, ArrayRef<int> mask) {
  return dims.size() == mask.size() + 1 && dims.take_front(mask.size()) == mask;
}

/// A routed einsum of one value beside the mask.
static bool isOfOne(EinsumOp op) { return op && op.getMask() && op.getInputs().size() == 2; }

bool pc::isDispatch(EinsumOp op) {
  if (!isOfOne(op))
    return false;
  FactorRule rule = op.getFactorRule();
  return areOfTokens(rule.operands[0], rule.operands[1]) && areOfEntries(rule.results[0], rule.operands[1]) &&
         rule.operands[0].back() == rule.results[0].back();
}

bool pc::isCombine(EinsumOp op) {
  if (!isOfOne(op))
    return false;
  FactorRule rule = op.getFactorRule();
  return areOfEntries(rule.operands[0], rule.operands[1]) && areOfTokens(rule.results[0], rule.operands[1]) &&
         rule.operands[0].back() == rule.results[0].back();
}
