//===- Contraction.cpp - An einsum as a product of matrices, or as dispatch -----------------===//
// Input: the factor rule of an einsum. Result: its factors, sorted into the roles of a batched matrix product (batch,
// m, n, k, and those in only one operand) in the order in which they occur in the result, then in the operands. The
// factors and the mask of an einsum show whether it copies tokens to (token, expert) entries, or combines entries to
// tokens. The mask's last dim is that of experts; the other dims belong to tokens.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/Contraction.h"
#include "pc/IR/Dispatch.h"

using namespace mlir;
using namespace pc;

/// The role of a factor follows from the tensors that have it. A factor of a, b and c is batch; of a and c, m; of b and
/// c, n; of a and b, k.
Contraction::Contraction(const FactorRule &rule) {
  if (rule.results.empty()) // a spec that does not fit the op
    return;
  ArrayRef<int> c = rule.results[0];
  for (ArrayRef<int> dims : rule.operands)
    for (int f : dims)
      if (!llvm::is_contained(c, f) && !llvm::is_contained(summed, f))
        summed.push_back(f);
  if (rule.operands.size() != 2)
    return;
  ArrayRef<int> a = rule.operands[0], b = rule.operands[1];
  llvm::SmallVector<bool> seen(rule.factors.size());
  for (ArrayRef<int> dims : {c, a, b})
    for (int f : dims) {
      if (seen[f])
        continue;
      seen[f] = true;
      bool inA = llvm::is_contained(a, f), inB = llvm::is_contained(b, f), inC = llvm::is_contained(c, f);
      auto &group = inA && inB ? (inC ? batch : k) : inC && inA ? m : inC && inB ? n : alone;
      group.push_back(f);
    }
}

/// All operands must have the same dims, of which the result keeps the last ones.
bool pc::sumsLeadingDims(EinsumOp op) {
  FactorRule rule = op.getFactorRule();
  ArrayRef<int> result = rule.results[0],
                first = rule.operands.empty() ? ArrayRef<int>() : ArrayRef<int>(rule.operands[0]);
  return !result.empty() && first.size() > result.size() && first.take_back(result.size()) == result &&
         llvm::all_of(rule.operands, [&](const auto &dims) { return ArrayRef<int>(dims) == first; }) &&
         llvm::all_of(first, [&](int f) { return llvm::count(first, f) == 1; });
}

//===---------------------------------------------------------------------------===//
// Dispatch to experts and its inverse
//===---------------------------------------------------------------------------===//

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

bool pc::isOfRouter(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    return isa<TopKOp, TopGroupsOp>(user) || (isa<AddOp, ActivationOp>(user) && isOfRouter(user->getResult(0)));
  });
}

bool pc::isTransposition(EinsumOp op) {
  FactorRule rule = op.getFactorRule();
  if (op.getInputs().size() != 1 || rule.operands.size() != 1 || rule.results.size() != 1)
    return false;
  auto from = llvm::to_vector(rule.operands[0]), to = llvm::to_vector(rule.results[0]);
  llvm::sort(from);
  llvm::sort(to);
  return from == to && std::adjacent_find(from.begin(), from.end()) == from.end();
}

bool pc::isDispatch(EinsumOp op) { return brings(op, areOfTokens, areOfEntries); }
bool pc::isCombine(EinsumOp op) { return brings(op, areOfEntries, areOfTokens); }
