//===- Recurrence.cpp - Evaluation of linear recurrences -------------------------------------===//
// Each index of the other dims of b selects one recurrence. It is walked step by step in double precision.
//===----------------------------------------------------------------------------------------===//
#include "Evaluators.h"
#include "pc/IR/Factors.h"

using namespace pc;

RecurrentDims::RecurrentDims(const FactorRule &rule, llvm::StringRef along, bool reverse) : reverse(reverse) {
  llvm::ArrayRef<int> a = rule.operands[0], b = rule.operands[1];
  for (int factor : b) {
    const auto *at = llvm::find(a, factor);
    ofA.push_back(at == a.end() ? -1 : static_cast<int>(at - a.begin()));
  }
  this->along = llvm::find(b, rule.find(along)) - b.begin();
}

namespace {
/// One recurrence in memory: the first element in b and in a, and the distance between consecutive steps in each.
struct Walk {
  int64_t first, firstOfA, step, stepOfA;
};
} // namespace

/// Calls f(walk) for each recurrence in a tensor of b's shape.
static void forEachWalk(const Shape &b, const Shape &a, const RecurrentDims &dims, llvm::function_ref<void(Walk)> f) {
  llvm::SmallVector<int64_t> strides(b.size()), stridesOfA(b.size(), 0);
  auto strideIn = [](const Shape &shape, size_t dim) {
    return numElements(llvm::ArrayRef<int64_t>(shape).drop_front(dim + 1));
  };
  for (size_t d = 0; d < b.size(); ++d) {
    strides[d] = strideIn(b, d);
    if (dims.ofA[d] >= 0)
      stridesOfA[d] = strideIn(a, dims.ofA[d]);
  }
  int64_t sign = dims.reverse ? -1 : 1, first = dims.reverse ? b[dims.along] - 1 : 0;
  for (int64_t i = 0, e = numElements(b); i < e; ++i) {
    if (i / strides[dims.along] % b[dims.along] != first)
      continue;
    int64_t atA = 0;
    for (size_t d = 0; d < b.size(); ++d)
      atA += i / strides[d] % b[d] * stridesOfA[d];
    f({i, atA, sign * strides[dims.along], sign * stridesOfA[dims.along]});
  }
}

/// h_t = a_t h_(t-1) + b_t, with h_(-1) = 0.
Tensors pc::recurrence(Inputs in, const RecurrentDims &dims) {
  const Tensor &a = *in[0], &b = *in[1];
  Tensor h(b.shape);
  forEachWalk(b.shape, a.shape, dims, [&](const Walk &walk) {
    double state = 0;
    for (int64_t t = 0; t < b.shape[dims.along]; ++t) {
      int64_t at = walk.first + t * walk.step;
      state = a[walk.firstOfA + t * walk.stepOfA] * state + b[at];
      h[at] = state;
    }
  });
  return {h};
}

/// Walks backwards: the gradient of h_t is dh_t plus a_(t+1) times the gradient of h_(t+1).
Tensors pc::recurrenceGrad(Inputs in, const RecurrentDims &dims) {
  const Tensor &a = *in[0], &h = *in[1], &dh = *in[2];
  Tensor da(a.shape), db(h.shape);
  forEachWalk(h.shape, a.shape, dims, [&](const Walk &walk) {
    double later = 0; // what h_t adds to the gradient by h_{t+1}
    for (int64_t t = h.shape[dims.along] - 1; t >= 0; --t) {
      int64_t at = walk.first + t * walk.step, atA = walk.firstOfA + t * walk.stepOfA;
      double gradient = dh[at] + later;
      db[at] = gradient;
      if (t > 0)
        da[atA] += gradient * h[at - walk.step];
      later = a[atA] * gradient;
    }
  });
  return {da, db};
}
