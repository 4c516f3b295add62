//===- NormLimit.h - Which steps are skipped ------------------------------===//
// A step whose gradient's norm is no finite number, or far above the norms before it, updates nothing: decided inside
// the step, by a limit that the runtime gives it. The limit depends on earlier norms alone, so all ranks, and a run
// that goes on from a checkpoint, decide alike.
//===----------------------------------------------------------------------===//
#ifndef PCRT_METRICS_NORMLIMIT_H
#define PCRT_METRICS_NORMLIMIT_H

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pcrt {

class NormLimit {
public:
  /// What a checkpoint keeps of it.
  struct History {
    std::vector<float> norms; ///< Of the last steps that were not skipped, oldest first.
    int64_t skipped = 0;      ///< Steps skipped since the last one that was not.
  };

  /// The norms are compared with the last `window` ones, from `least` on.
  static constexpr size_t window = 128, least = 16;

  /// `deviations`: how many standard deviations above the mean a norm may be; without it only norms that are not finite
  /// skip.
  NormLimit(std::optional<double> deviations, History history) : deviations(deviations), past(std::move(history)) {}

  /// Steps whose norm is not less are skipped.
  float limit() const;
  /// Takes note of the norm of a step that limit() was given to. Whether the step was skipped.
  bool add(float norm);

  const History &history() const { return past; }

private:
  std::optional<double> deviations;
  History past;
};

/// Why a step with this loss and norm of the gradient is not made: "loss is not finite (nan)", or that the norm is not
/// below the limit.
std::string whyNotMade(double loss, double norm, float limit);

} // namespace pcrt

#endif // PCRT_METRICS_NORMLIMIT_H
