//===- Contraction.cpp - An einsum as a product of matrices -------------------------------===//
// Input: the factor rule of an einsum. Result: its factors, sorted into the roles of a batched matrix product (batch,
// m, n, k, and those in only one operand) in the order in which they occur in the result, then in the operands.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/Contraction.h"

using namespace mlir;
using namespace pc;

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

bool pc::sumsLeadingDims(EinsumOp op) {
  FactorRule rule = op.getFactorRule();
  ArrayRef<int> result = rule.results[0],
                first = rule.operands.empty() ? ArrayRef<int>() : ArrayRef<int>(rule.operands[0]);
  return !result.empty() && first.size() > result.size() && first.take_back(result.size()) == result &&
         llvm::all_of(rule.operands, [&](const auto &dims) { return ArrayRef<int>(dims) == first; }) &&
         llvm::all_of(first, [&](int f) { return llvm::count(first, f) == 1; });
}
