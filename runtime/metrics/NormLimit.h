//===- NormLimit.h - The limit of the gradient norm -----------------------===//
// A step whose gradient norm is not finite, or far above earlier norms, updates nothing. The step itself decides this,
// by a limit that the runtime passes to it. The limit depends only on earlier norms, so all ranks, and a run that
// continues a checkpoint, make the same decision.
//===----------------------------------------------------------------------===//
#ifndef PCRT_METRICS_NORMLIMIT_H
#define PCRT_METRICS_NORMLIMIT_H

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pcrt {

/// The history of norms and the limit that follows from it. Every rank has one, with the same history.
class NormLimit {
public:
  /// The part that a checkpoint keeps.
  struct History {
    std::vector<float> norms; ///< The norms of the last steps that were not skipped, the oldest first.
    int64_t skipped = 0;      ///< The number of steps skipped in a row so far.
  };

  /// A norm is compared with the last `window` ones, if there are at least `least`.
  static constexpr size_t window = 128, least = 16;

  /// A norm may be `deviations` standard deviations above the mean; without `deviations`, only steps with a norm that
  /// is not finite are skipped.
  NormLimit(std::optional<double> deviations, History history) : deviations(deviations), past(std::move(history)) {}

  /// The limit: steps whose norm is not less are skipped.
  float limit() const;
  /// Adds the norm of a step that had this limit(). Returns whether the step was skipped.
  bool add(float norm);

  const History &history() const { return past; }

private:
  std::optional<double> deviations;
  History past;
};

/// The reason why a step with this loss and gradient norm is skipped: "loss is not finite (nan)", or that the norm is
/// not below the limit.
std::string whyNotMade(double loss, double norm, float limit);

} // namespace pcrt

#endif // PCRT_METRICS_NORMLIMIT_H
