//===- AttentionPlan.h - Attention as a graph for cuDNN -------------------===//
// cuDNN's backend API takes attention as a graph of tensors and operations and gives an execution plan. There is a plan
// for the forward pass with the log-sum-exp of the scores, and one for the gradient, which is computed from it. A plan
// needs no device if the device's properties are given as JSON. So the compiler can ask for the size of workspaces, and
// tests can ask whether plans exist.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_ATTENTIONPLAN_H
#define PCRT_CUDA_ATTENTIONPLAN_H

#include "cuda/Cudnn.h"
#include "pcrt/pcrt.h"

#include <string>

namespace pcrt::cuda {

/// The tensors of an attention graph that have memory, by the ids they are bound with. The last three are scalars whose
/// pointers are host pointers to f32.
enum AttentionTensor : int64_t {
  AttentionQ = 1,
  AttentionK = 2,
  AttentionV = 3,
  AttentionO = 4,
  AttentionStatistics = 5,
  AttentionDO = 6,
  AttentionDQ = 7,
  AttentionDK = 8,
  AttentionDV = 9,
  AttentionDot = 10,         ///< f32 [B, H, S, 1]: dO . O.
  AttentionAccumulator = 11, ///< f32 [B, H, S, D]: addends of dQ.
  AttentionScale = 50,
  AttentionMinusInfinity = 51,
  AttentionOne = 52,
};

/// An execution plan of cuDNN.
struct AttentionPlan {
  DnnDescriptor descriptor = nullptr; ///< The caller of build() destroys it.
  int64_t workspaceBytes = 0;
};

/// Builds plans for one device or kind of device. The planner borrows the library's table. One thread uses it.
class AttentionPlanner {
public:
  /// Builds plans for the device of `handle`.
  AttentionPlanner(const Cudnn &dnn, DnnHandle handle) : dnn(dnn), handle(handle) {}
  /// Builds plans for a device that need not exist on this machine; see deviceProperties.
  AttentionPlanner(const Cudnn &dnn, const std::string &json);
  ~AttentionPlanner();
  AttentionPlanner(const AttentionPlanner &) = delete;
  AttentionPlanner &operator=(const AttentionPlanner &) = delete;

  /// Plans `desc` (bf16) with at most `mostWorkspace` bytes of workspace (< 0: any number). If `deterministic` is true,
  /// dQ is added up in a fixed order, in a workspace of B x H x S x S, and AttentionAccumulator does not exist. Returns
  /// "" or the library's error.
  std::string build(const pcrt_attention_desc &desc, bool deterministic, int64_t mostWorkspace, AttentionPlan *plan);

private:
  const Cudnn &dnn;
  DnnHandle handle = nullptr;
  DnnDescriptor device = nullptr;
};

/// Returns the properties of a typical device of an architecture (80: A100, 90: H200, 100: B200) as the JSON that cuDNN
/// reads. Returns "" for other architectures.
std::string deviceProperties(int arch);

} // namespace pcrt::cuda

#endif // PCRT_CUDA_ATTENTIONPLAN_H
