//===- Tensor.cpp - A dense tensor of doubles ------------------------------------------===//
// Boxes of a tensor, rounding to bf16 (to nearest, ties to even), and the measure of difference that all comparisons
// use: absolute difference over the larger of the tensors' largest element and the elements themselves.
//===-----------------------------------------------------------------------------===//
#include "pc/Reference/Tensor.h"

#include "llvm/ADT/STLExtras.h"
#include <cmath>
#include <limits>

using namespace pc;
using llvm::ArrayRef;

int64_t pc::numElements(ArrayRef<int64_t> shape) {
  int64_t n = 1;
  for (int64_t size : shape)
    n *= size;
  return n;
}

double pc::roundToBf16(double x) {
  if (!std::isfinite(x) || x == 0)
    return x;
  // 8 significant bits; subnormals, below 2^-126, have the grid of the smallest normal numbers.
  double grid = std::ldexp(1.0, std::max(std::ilogb(x), -126) - 7);
  double rounded = std::nearbyint(x / grid) * grid;
  return std::abs(rounded) > 0x1.FEp127 ? std::copysign(INFINITY, x) : rounded;
}

Tensor::Tensor(ArrayRef<int64_t> shape, double value) : shape(shape), data(numElements(shape), value) {}

/// Calls `visit(position in whole, position in part)` for every element of the part of shape `sizes` that begins at
/// `start`.
static void visitBox(ArrayRef<int64_t> whole, ArrayRef<int64_t> start, ArrayRef<int64_t> sizes,
                     llvm::function_ref<void(int64_t, int64_t)> visit) {
  Shape index(sizes.size(), 0);
  for (int64_t i = 0, n = numElements(sizes); i < n; ++i) {
    int64_t at = 0;
    for (auto [d, size] : llvm::enumerate(whole))
      at = at * size + start[d] + index[d];
    visit(at, i);
    for (int64_t d = sizes.size() - 1; d >= 0 && ++index[d] == sizes[d]; --d)
      index[d] = 0;
  }
}

Tensor Tensor::box(ArrayRef<int64_t> start, ArrayRef<int64_t> sizes) const {
  Tensor result(sizes);
  visitBox(shape, start, sizes, [&](int64_t whole, int64_t part) { result[part] = data[whole]; });
  return result;
}

void Tensor::merge(ArrayRef<int64_t> start, const Tensor &part, llvm::function_ref<void(double &, double)> combine) {
  visitBox(shape, start, part.shape, [&](int64_t whole, int64_t i) { combine(data[whole], part[i]); });
}

double pc::largestElement(const Tensor &tensor) {
  double largest = 0;
  for (double x : tensor.data)
    if (std::abs(x) < 1e20)
      largest = std::max(largest, std::abs(x));
  return largest;
}

double pc::largestDifference(const Tensor &a, const Tensor &b, double leastScale) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  auto longDims = [](const Tensor &x) { return llvm::filter_to_vector(x.shape, [](int64_t n) { return n != 1; }); };
  if (longDims(a) != longDims(b))
    return infinity;
  double scale = std::max({leastScale, largestElement(a), largestElement(b)}), largest = 0;
  for (auto [x, y] : llvm::zip(a.data, b.data)) {
    if (x == y || (std::isnan(x) && std::isnan(y)))
      continue;
    double difference = std::abs(x - y) / std::max(scale, std::max(std::abs(x), std::abs(y)));
    largest = std::max(largest, std::isnan(difference) ? infinity : difference);
  }
  return largest;
}
