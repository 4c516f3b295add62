//===- Optimizer.h - AdamW and SGD of a vector of elements--------------------------------===//
// All kernels of an optimizer share these formulas: those for one tensor and for many, on a CPU and on a GPU.
// Constructors load the scalars once, outside of loops.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_KERNELS_OPTIMIZER_H
#define PC_LIB_CODEGEN_KERNELS_OPTIMIZER_H

#include "../Emit/Emit.h"

namespace pc::kernels {

/// The scalars of AdamW, loaded once. The order of operations is torch.optim's. A coefficient of NaN skips the step.
class AdamW {
public:
  /// Loads the scalars. Must be called outside of loops. `coefficient` is the factor that clips gradients. `hyper` has
  /// the values PCRT_HYPER_*.
  AdamW(Emitter &e, Ptr coefficient, Ptr hyper);

  /// An element, or a vector of elements, of a parameter and of its two moments.
  struct State {
    Num parameter, first, second;
  };
  State step(State old, Num gradient) const;

private:
  Emitter &e;
  Num coefficient, skips, beta1, beta2, epsilon, keep, descent, root2, rest1, rest2;
};

/// The scalars of SGD without momentum, loaded once.
class SGD {
public:
  /// Loads the scalars, as AdamW does.
  SGD(Emitter &e, Ptr coefficient, Ptr hyper);
  Num step(Num parameter, Num gradient) const;

private:
  Emitter &e;
  Num coefficient, skips, descent, decay;
};

} // namespace pc::kernels
#endif
