//===- Tensor.h - A dense tensor of doubles -------------------------------------------===//
// What the interpreter computes with. Integers (token ids, offsets) are doubles too: all of them are exact.
//===-----------------------------------------------------------------------------===//
#ifndef PC_REFERENCE_TENSOR_H
#define PC_REFERENCE_TENSOR_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>
#include <vector>

namespace pc {

using Shape = llvm::SmallVector<int64_t, 6>;

/// A tensor, row major.
struct Tensor {
  Shape shape;
  std::vector<double> data;

  Tensor() : data(1) {} ///< the scalar 0
  explicit Tensor(llvm::ArrayRef<int64_t> shape, double value = 0);

  int64_t size() const { return data.size(); }
  int64_t rank() const { return shape.size(); }
  double &operator[](int64_t i) { return data[i]; }
  double operator[](int64_t i) const { return data[i]; }

  /// The box of shape `sizes` that begins at `start`. Constraint: it lies inside.
  Tensor box(llvm::ArrayRef<int64_t> start, llvm::ArrayRef<int64_t> sizes) const;
  /// Calls `combine(own element, element of part)` for the box that begins at `start` and has the shape of `part`.
  void merge(llvm::ArrayRef<int64_t> start, const Tensor &part, llvm::function_ref<void(double &, double)> combine);
};

/// The nearest bf16, ties to even; beyond the largest one infinity.
double roundToBf16(double x);

/// The number of elements of `shape`.
int64_t numElements(llvm::ArrayRef<int64_t> shape);

/// The largest difference of `a` and `b` relative to the largest element of both: 0 for equal tensors, infinity where
/// shapes differ or one side alone is not a number. Elements beyond 1e20 (masked scores) do not set the scale, and a
/// scale below `leastScale` counts as that, because what is zero in exact arithmetic is rounding noise on both sides.
double largestDifference(const Tensor &a, const Tensor &b, double leastScale = 1e-6);

/// The largest absolute value of the elements that are below 1e20.
double largestElement(const Tensor &tensor);

} // namespace pc

#endif
