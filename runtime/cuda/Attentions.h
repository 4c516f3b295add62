//===- Attentions.h - The attentions of a program on cuDNN ----------------===//
#ifndef PCRT_CUDA_ATTENTIONS_H
#define PCRT_CUDA_ATTENTIONS_H

#include "cuda/AttentionPlan.h"
#include "cuda/Kernels.h"
#include "cuda/Session.h"

#include <memory>

namespace pcrt::cuda {

class Attentions {
public:
  /// Loads the library. Throws PCRT_RESOURCE where it is missing and some attention has no kernels of the program's
  /// own. `kernels`: the program's; may be null where no attention has some.
  Attentions(Session &session, const pcrt_program &program, Kernels *kernels);
  ~Attentions();

  /// Makes the plan of attention `index` as it is called with `args`, once for all layers of one shape. Throws
  /// PCRT_INTERNAL naming an attention that has neither a plan nor kernels of the program's own, and PCRT_RESOURCE
  /// where only a newer library computes it right.
  void prepare(int index, void *const *args);

  /// Enqueues an attention on the compute stream; `args` as pcrt_attention has them. Returns "" or what the library
  /// says.
  std::string run(int index, void *const *args);

  const Opened &library() const { return opened; }
  /// Why attentions run on the program's own kernels; "" if none does.
  const std::string &whyOwn() const { return reason; }
  /// The largest workspace of all plans.
  int64_t workspaceBytes() const;

private:
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
