//===- Attentions.h - The attentions of a program on cuDNN ----------------===//
// Each attention runs by a plan of cuDNN or, if there is no plan, by the program's own kernels.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_ATTENTIONS_H
#define PCRT_CUDA_ATTENTIONS_H

#include "cuda/AttentionPlan.h"
#include "cuda/Kernels.h"
#include "cuda/Session.h"

#include <memory>

namespace pcrt::cuda {

/// The attentions of one program. The rank's thread calls this object. It owns cuDNN's handle and all plans and borrows
/// the rest.
class Attentions {
public:
  /// Loads the library. Throws PCRT_RESOURCE if the library is missing and some attention has no kernels in the
  /// program. `kernels` are the program's kernels; null if no attention has any.
  Attentions(Session &session, const pcrt_program &program, Kernels *kernels);
  ~Attentions();

  /// Creates the plan of attention `index`, called with `args`, once for all layers of one shape. Throws PCRT_INTERNAL,
  /// naming the attention, if it has neither a plan nor kernels in the program. Throws PCRT_RESOURCE if only a newer
  /// library computes the attention correctly.
  void prepare(int index, void *const *args);

  /// Enqueues an attention on the compute stream; `args` are the arguments of pcrt_attention. Returns "" or the
  /// library's error.
  std::string run(int index, void *const *args);

  const Opened &library() const { return opened; }
  /// Returns the reason why attentions run on the program's own kernels; "" if no attention does.
  const std::string &whyOwn() const { return reason; }
  /// The largest workspace of all plans.
  int64_t workspaceBytes() const;

private:
  /// A distinct attention of the program with its cuDNN plan.
  struct Shape {
    pcrt_attention_desc desc;
    bool deterministic;
    AttentionPlan plan;
  };
  static bool deterministic(const pcrt_attention_desc &desc, void *const *args);

  Session &session;
  const pcrt_program &program;
  Kernels *kernels;
  std::string reason;
  Cudnn dnn;
  Opened opened;
  DnnHandle handle = nullptr;
  std::unique_ptr<AttentionPlanner> planner;
  std::vector<std::unique_ptr<Shape>> shapes;
  std::vector<Shape *> shapeOf; ///< By index in the program's table.
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_ATTENTIONS_H
