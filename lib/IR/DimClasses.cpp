//===- DimClasses.cpp - Which dims of a program iterate together -------------------===//
// Union-find over all (value, dim) pairs. Factor rules, accumulations and moves join dims that must have the same size.
// Therefore every op stays valid if a whole class is resized. A class is named by its smallest member, so names do not
// depend on hashing.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/DimClasses.h"

using namespace mlir;
using namespace pc;

/// The dims of a value have consecutive numbers, assigned when the value is first seen.
unsigned DimClasses::node(Value value, int64_t d) {
  auto [it, inserted] = first.try_emplace(value, parent.size());
  if (inserted)
    for (int64_t i = 0, e = cast<RankedTensorType>(value.getType()).getRank(); i < e; ++i)
      parent.push_back(parent.size());
  return it->second + d;
}

unsigned DimClasses::find(unsigned n) {
  while (parent[n] != n)
    n = parent[n] = parent[parent[n]];
  return n;
}

void DimClasses::join(unsigned a, unsigned b) {
  a = find(a), b = find(b);
  parent[std::max(a, b)] = std::min(a, b);
}

unsigned DimClasses::classOf(Value value, int64_t d) { return find(node(value, d)); }

bool pc::isDivided(Operation *op, const FactorRule &rule, int factor) {
  auto differs = [&](Value value, ArrayRef<int> dims) {
    for (auto [d, f] : llvm::enumerate(dims))
      if (f == factor && cast<RankedTensorType>(value.getType()).getDimSize(d) != rule.factors[f].size)
        return true;
    return false;
  };
  return isa<ReshapeOp>(op) &&
         (differs(op->getOperand(0), rule.operands[0]) || differs(op->getResult(0), rule.results[0]));
}

/// Joins dims with the same factor in each op, and dims that accumulations pass in and out.
DimClasses::DimClasses(Operation *root) {
  auto same = [&](Value a, Value b, int64_t skipA = 0) {
    for (int64_t d = 0, e = cast<RankedTensorType>(b.getType()).getRank(); d < e; ++d)
      join(node(a, d + skipA), node(b, d));
  };
  root->walk([&](Operation *op) {
    // Dims with the same factor of an op iterate together.
    if (auto factored = dyn_cast<FactorOpInterface>(op)) {
      FactorRule rule = factored.getFactorRule();
      SmallVector<int64_t> seen(rule.factors.size(), -1);
      auto visit = [&](Value value, ArrayRef<int> dims) {
        for (auto [d, f] : llvm::enumerate(dims)) {
          unsigned n = node(value, d);
          if (isDivided(op, rule, f))
            continue;
          if (seen[f] < 0)
            seen[f] = n;
          else
            join(seen[f], n);
        }
      };
      for (auto [value, dims] : llvm::zip(op->getOperands(), rule.operands))
        visit(value, dims);
      for (auto [value, dims] : llvm::zip(op->getResults(), rule.results))
        visit(value, dims);
    } else if (auto accumulate = dyn_cast<AccumulateOp>(op)) {
      // The first dim of an input counts microbatches, which its elements do not have.
      for (auto [operand, argument] : llvm::zip(accumulate.getInputs(), accumulate.getBody().getArguments()))
        same(operand, argument, 1);
      for (auto [yielded, result] :
           llvm::zip(accumulate.getBody().front().getTerminator()->getOperands(), accumulate.getResults()))
        same(yielded, result);
    } else if (isa<MoveOpInterface>(op)) {
      same(op->getOperand(0), op->getResult(0));
    }
  });
}

/// Changes the types of all values that have a dim of the class.
void DimClasses::resize(unsigned id, int64_t size) {
  for (auto &[value, base] : first) {
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape(type.getShape());
    bool changed = false;
    for (int64_t d = 0; d < type.getRank(); ++d)
      if (find(base + d) == find(id) && shape[d] != size) {
        shape[d] = size;
        changed = true;
      }
    if (changed)
      Value(value).setType(RankedTensorType::get(shape, type.getElementType(), type.getEncoding()));
  }
}
