//===- Tensor.h - A dense tensor of doubles -------------------------------------------===//
// The only type of values in the interpreter. Integers (token ids, offsets) are also doubles, which represent them
// exactly.
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

  /// The box of shape `sizes` that begins at `start`. It must lie inside the tensor.
  Tensor box(llvm::ArrayRef<int64_t> start, llvm::ArrayRef<int64_t> sizes) const;
  /// Calls `combine(own element, element of part)` for the box that begins at `start` and has the shape of `part`.
  void merge(llvm::ArrayRef<int64_t> start, const Tensor &part, llvm::function_ref<void(double &, double)> combine);
};

/// The nearest bf16, ties to even; infinity if it is beyond the largest bf16.
double roundToBf16(double x);

/// The number of elements of `shape`.
int64_t numElements(llvm::ArrayRef<int64_t> shape);

/// The largest difference of `a` and `b`, relative to their largest element. 0 for equal tensors; infinity if shapes
/// differ (except for dims of size 1) or an element is NaN in only one of them. Elements beyond 1e20 (masked scores) do
/// not count for the scale. The scale is at least `leastScale`, because values that are zero in exact arithmetic are
/// rounding noise in both tensors.
double largestDifference(const Tensor &a, const Tensor &b, double leastScale = 1e-6);

/// The largest absolute value of the elements that are below 1e20.
double largestElement(const Tensor &tensor);

} // namespace pc

#endif
