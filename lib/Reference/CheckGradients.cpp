//===- CheckGradients.cpp - Compares gradients with finite differences -----------------------===//
// Compares gradients of a program with central differences of its loss, at a few elements of each parameter, in double
// precision without rounding. The module is not changed.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_CHECKGRADIENTS
#include "pc/Reference/Passes.h"

#include "pc/IR/Parts.h"
#include "pc/Reference/Interpreter.h"

#include "llvm/Support/Format.h"
#include <cmath>

using namespace mlir;
using namespace pc;

namespace {

/// The position in a parameter of shape `padded` of element `i` of a part.
int64_t inPadded(int64_t i, const ParameterPart &part, ArrayRef<int64_t> padded) {
  int64_t at = 0, stride = 1;
  for (int64_t d = part.size.size() - 1; d >= 0; --d) {
    at += (part.start[d] + i % part.size[d]) * stride;
    i /= part.size[d];
    stride *= padded[d];
  }
  return at;
}

/// The pass pc-check-gradients. It interprets the program once for its gradients, and twice for each element that it
/// checks.
struct CheckGradients : pc::impl::CheckGradientsBase<CheckGradients> {
  using CheckGradientsBase::CheckGradientsBase;

  void runOnOperation() override {
    auto results = interpret(getOperation(), runOptions());
    if (failed(results))
      return signalPassFailure();
    bool any = false;
    for (const NamedTensor &result : *results) {
      StringRef name = result.name;
      if (!name.consume_front("gradient "))
        continue;
      any = true;
      if (failed(checkOne(name, result.value)))
        return signalPassFailure();
    }
    if (!any) {
      getOperation().emitError() << "pc-check-gradients: the program has no output of kind gradient";
      return signalPassFailure();
    }
    markAllAnalysesPreserved();
  }

  RunOptions runOptions() const {
    RunOptions options;
    options.seed = seed;
    options.exact = true; // rounding has no derivative
    return options;
  }

  /// The loss after adding `delta` to element `i` of parameter `name`, without padding.
  FailureOr<double> lossWith(StringRef name, int64_t i, double delta) {
    RunOptions options = runOptions();
    options.feed = [&](Operation *leaf, Tensor &value) {
      if (auto parameter = dyn_cast<ParameterOp>(leaf))
        for (const ParameterPart &part : partsOf(parameter))
          if (part.name == name)
            value[inPadded(i, part, value.shape)] += delta;
    };
    auto results = interpret(getOperation(), options);
    if (failed(results))
      return failure();
    for (const NamedTensor &result : *results)
      if (StringRef(result.name).starts_with("loss "))
        return result.value[0];
    return getOperation().emitError() << "pc-check-gradients: the program has no output of kind loss";
  }

  /// Compares a few elements with central differences; errors are relative to the gradient's largest element.
  LogicalResult checkOne(StringRef name, const Tensor &gradient) {
    double scale = 1e-6, worst = 0;
    for (double g : gradient.data)
      scale = std::max(scale, std::abs(g));
    int64_t n = gradient.size(), count = std::min<int64_t>(samples, n);
    for (int64_t k = 0; k < count; ++k) {
      int64_t i = (2 * k + 1) * n / (2 * count); // the middle of each of `count` equal intervals
      auto above = lossWith(name, i, epsilon), below = lossWith(name, i, -epsilon);
      if (failed(above) || failed(below))
        return failure();
      double expected = (*above - *below) / (2 * epsilon), difference = std::abs(expected - gradient[i]) / scale;
      if (!(difference <= tolerance)) // also for NaN
        return getOperation().emitError() << "pc-check-gradients: gradient of '" << name << "', element " << i
                                          << ", is " << gradient[i] << ", but finite differences give " << expected;
      worst = std::max(worst, difference);
    }
    llvm::outs() << "gradient " << name << ": " << count << " elements, largest relative difference "
                 << llvm::format("%.1e", worst) << "\n";
    return success();
  }
};

} // namespace
