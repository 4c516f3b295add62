//===- TensorGraph.h - The operation graphs of cuDNN ----------------------===//
// Tensors have four dims (batch, head, row, column) with any strides. Products, elementwise operations, reductions and
// transpositions connect them. A graph is executed one batch entry after the other, in f32; virtual tensors are rounded
// to their type.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_TENSORGRAPH_H
#define PC_STANDIN_TENSORGRAPH_H

#include "standin/Scheduler.h"
#include "standin/abi/Cudnn.h"

#include <array>
#include <map>

namespace pc::standin {

using Dims = std::array<int64_t, 4>;

/// A tensor of a graph.
struct Tensor {
  int64_t id = 0;
  Dims dims{}, strides{};
  int type = CUDNN_DATA_FLOAT;
  bool isVirtual = false, isValue = false;

  int64_t elementBytes() const { return type == CUDNN_DATA_BFLOAT16 ? 2 : 4; }
};

/// An operation of a graph.
struct Operation {
  enum Kind { Matmul, Pointwise, Reduction, Reshape } kind;
  int mode = 0;       ///< The mode of a Pointwise or Reduction.
  int axis = 0;       ///< The axis of GEN_INDEX.
  int64_t x, b, t, y; ///< Ids of tensors; b and t are -1 if absent. Matmul: y = x b.
};
/// A graph of operations in the order of their execution.
struct TensorGraph {
  std::map<int64_t, Tensor> tensors;
  std::vector<Operation> operations;

  /// The reason why cuDNN's attention engine does not take this graph; empty if it does.
  std::string check() const;
  bool isBackward() const { return operations.size() > 14; }
  /// The graph as text: "attention backward 2x4x16x16, 8 wide".
  std::string name() const;

  /// The addresses of real tensors, and the values of those that are given by value.
  struct Binding {
    std::map<int64_t, void *> pointers;
    std::map<int64_t, float> values;
  };
  /// The bytes that a run reads and writes.
  std::vector<Access> accesses(const Binding &binding) const;
  /// Executes the graph. With `spoils`, gradients of keys and values after the last complete block of 128 keys are
  /// NaNs.
  void run(const Binding &binding, bool spoils = false) const;
};

} // namespace pc::standin

#endif // PC_STANDIN_TENSORGRAPH_H
