//===- Optimizer.cpp - AdamW and SGD in one pass over the parameter ------------------===//
// The order of operations is torch.optim's. Roundings are part of the formulas, so kernels for one tensor and for many
// have the same bits. Results may be the operands' own memory: an element is read before it is written.
//===-----------------------------------------------------------------------------===//
#include "Optimizer.h"
#include "Kernels.h"
#include "pcrt/description.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace pc;
using namespace pc::kernels;

/// The number of elements in one work item.
static constexpr int64_t blockSize = 4096;

/// Covers the elements of the kernel's items: element(first index, width).
static void elements(Kernel &kernel, Value parameter, llvm::function_ref<void(Num, int64_t)> element) {
  Emitter &e = kernel.e;
  const int64_t count = cast<RankedTensorType>(parameter.getType()).getNumElements();
  if (kernel.simt) {
    kernel.kind = "optimizer";
    return kernel.forItems(1, count, /*reduces=*/false, [&](Num) { e.vectors(count, element); });
  }
  const int64_t full = count / e.lanes * e.lanes;
  kernel.items = (count + blockSize - 1) / blockSize;
  kernel.kind = "optimizer";
  if (full)
    e.loop(kernel.lo * blockSize, e.min(kernel.hi * blockSize, e.integer(full)), e.lanes,
           [&](Num i) { element(i, e.lanes); });
  if (full < count)
    e.when(e.inRange(e.integer(kernel.items - 1) - kernel.lo, kernel.hi - kernel.lo),
           [&] { element(e.integer(full), count - full); });
}

/// Numbers that are equal for all elements are computed once. A coefficient of NaN means that the step is skipped.
AdamW::AdamW(Emitter &e, Ptr coefficientAt, Ptr hyperAt) : e(e) {
  llvm::SaveAndRestore exact(e.isExact, true);
  auto hyper = [&](pcrt_hyper h) { return hyperAt.load(e.integer(h)); };
  coefficient = coefficientAt.load(e.integer(0)), skips = e.isNan(coefficient);
  beta1 = hyper(PCRT_HYPER_BETA1), beta2 = hyper(PCRT_HYPER_BETA2), epsilon = hyper(PCRT_HYPER_EPS);
  keep = 1.0 - hyper(PCRT_HYPER_LR) * hyper(PCRT_HYPER_WEIGHT_DECAY);
  descent = -1.0 * (hyper(PCRT_HYPER_LR) / hyper(PCRT_HYPER_CORRECTION1));
  root2 = e.sqrt(hyper(PCRT_HYPER_CORRECTION2));
  rest1 = 1.0 - beta1, rest2 = 1.0 - beta2;
}

/// In a skipped step the old values are selected, so they keep their bits.
AdamW::State AdamW::step(State old, Num gradient) const {
  llvm::SaveAndRestore exact(e.isExact, true);
  Num g = gradient * coefficient;
  Num m = e.fma(old.first, beta1, g * rest1);
  Num v = e.fma(old.second, beta2, g * g * rest2);
  Num denominator = e.sqrt(v) / root2 + epsilon;
  Num p = e.fma(descent, m / denominator, old.parameter * keep);
  return {e.select(skips, old.parameter, p), e.select(skips, old.first, m), e.select(skips, old.second, v)};
}

/// All operands are read before any result is written, because results are in place.
LogicalResult pc::kernels::emit(AdamWOp op, Kernel &kernel) {
  auto in = kernel.operands;
  AdamW adam(kernel.e, in[4], in[5]);
  elements(kernel, op.getParameter(), [&](Num i, int64_t width) {
    AdamW::State next =
        adam.step({in[0].load(i, width), in[2].load(i, width), in[3].load(i, width)}, in[1].load(i, width));
    kernel.results[0].store(next.parameter, i);
    kernel.results[1].store(next.first, i);
    kernel.results[2].store(next.second, i);
  });
  return success();
}

SGD::SGD(Emitter &e, Ptr coefficientAt, Ptr hyperAt)
    : e(e), coefficient(coefficientAt.load(e.integer(0))), skips(e.isNan(coefficient)),
      descent(-1.0 * hyperAt.load(e.integer(PCRT_HYPER_LR))), decay(hyperAt.load(e.integer(PCRT_HYPER_WEIGHT_DECAY))) {}

Num SGD::step(Num parameter, Num gradient) const {
  llvm::SaveAndRestore exact(e.isExact, true);
  return e.select(skips, parameter, e.fma(descent, e.fma(decay, parameter, gradient * coefficient), parameter));
}

LogicalResult pc::kernels::emit(SGDOp op, Kernel &kernel) {
  auto in = kernel.operands;
  SGD sgd(kernel.e, in[2], in[3]);
  elements(kernel, op.getParameter(), [&](Num i, int64_t width) {
    kernel.results[0].store(sgd.step(in[0].load(i, width), in[1].load(i, width)), i);
  });
  return success();
}
