//===- TensorGraph.h - The graphs of operations that cuDNN takes ----------===//
// Tensors of four dims (batch, head, row, column) with any strides; products, elementwise operations, reductions and
// transpositions between them. Executed one batch entry after the other, in f32, virtual tensors rounded to their type.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_TENSORGRAPH_H
#define PC_STANDIN_TENSORGRAPH_H

#include "standin/Scheduler.h"
#include "standin/abi/Cudnn.h"

#include <array>
#include <map>

namespace pc::standin {

using Dims = std::array<int64_t, 4>;

struct Tensor {
  int64_t id = 0;
  Dims dims{}, strides{};
  int type = CUDNN_DATA_FLOAT;
  bool isVirtual = false, isValue = false;

  int64_t elementBytes() const { return type == CUDNN_DATA_BFLOAT16 ? 2 : 4; }
};

struct Operation {
  enum Kind { Matmul, Pointwise, Reduction, Reshape } kind;
  int mode = 0;       ///< Of Pointwise and Reduction.
  int axis = 0;       ///< Of GEN_INDEX.
  int64_t x, b, t, y; ///< Ids of tensors; b and t: -1 if absent. Matmul: y = x b.
};

struct TensorGraph {
  std::map<int64_t, Tensor> tensors;
  std::vector<Operation> operations;

  /// Why this is not attention as cuDNN's engine takes it; empty if it is.
  std::string check() const;
  bool isBackward() const { return operations.size() > 14; }
  /// "attention backward 2x4x16x16, 8 wide".
  std::string name() const;

  /// Where the real tensors lie; values of those given by value.
  struct Binding {
    std::map<int64_t, void *> pointers;
    std::map<int64_t, float> values;
  };
  /// What a run reads and writes.
  std::vector<Access> accesses(const Binding &binding) const;
  /// `spoils`: gradients of keys and values after the last 128 whole keys become NaNs.
  void run(const Binding &binding, bool spoils = false) const;
};

} // namespace pc::standin

#endif // PC_STANDIN_TENSORGRAPH_H
