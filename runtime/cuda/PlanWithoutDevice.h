//===- PlanWithoutDevice.h - Plans of cuDNN on machines without a GPU -----===//
// Tells the compiler and tests whether cuDNN has a plan for an attention on a given architecture, and how much
// workspace the plan needs. This requires cuDNN, but neither a GPU nor libcuda.so.1: if there is no driver, an idle
// library is loaded under that name.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_PLANWITHOUTDEVICE_H
#define PCRT_CUDA_PLANWITHOUTDEVICE_H

#include "pcrt/pcrt.h"

#include <memory>
#include <string>

namespace pcrt::cuda {

/// cuDNN, opened for one architecture. One thread uses it.
class PlanWithoutDevice {
public:
  /// Opens cuDNN for `arch` (80, 90 or 100). Returns null, with the reason in `error`, if it is not on this machine.
  /// `idleDriver` is the path of libpc_idle_driver.so.
  static std::unique_ptr<PlanWithoutDevice> open(int arch, const std::string &idleDriver, std::string *error);
  ~PlanWithoutDevice();

  /// Plans an attention and sets `workspaceBytes` to the value for its pcrt_attention_desc. With `deterministic`, the
  /// gradient is computed without dq_accumulator. Returns "" or why there is no plan.
  std::string plan(const pcrt_attention_desc &desc, bool deterministic, int64_t *workspaceBytes);

  /// The version of the library, such as "9.19.0".
  const std::string &version() const;

private:
  struct State;
  explicit PlanWithoutDevice(std::unique_ptr<State> state);
  std::unique_ptr<State> state;
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_PLANWITHOUTDEVICE_H
