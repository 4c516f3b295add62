//===- Metrics.h - what is told about every step --------------------------===//
//
// Rank 0 writes one line of JSON a step (--metrics) and a progress line to
// standard output: rewritten on a terminal, else at most one a second.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_CORE_METRICS_H
#define PCRT_CORE_METRICS_H

#include <cstdint>
#include <optional>
#include <string>

namespace pcrt {

struct StepFigures {
  int64_t step = 0; ///< Counted from 0.
  double loss = 0;
  std::optional<double> gradNorm; ///< Where the program computes it.
  double lr = 0;
  int64_t tokens = 0; ///< Of this step.
  double seconds = 0;
};

class Metrics {
public:
  /// `path` empty: progress only. What is in the file stays until begin. Throws PCRT_RESOURCE.
  Metrics(const std::string &path, int64_t steps);
  ~Metrics();
  Metrics(const Metrics &) = delete;
  Metrics &operator=(const Metrics &) = delete;

  /// Before the first step: lines of the steps before `firstStep` stay. Throws PCRT_RESOURCE, and PCRT_USAGE if the
  /// file holds anything else than metrics and would lose it.
  void begin(int64_t firstStep);
  /// Throws PCRT_RESOURCE if the line cannot be written.
  void add(const StepFigures &figures);
  /// Ends the progress line.
  void finish();

private:
  std::string path;
  int fd = -1;
  int64_t steps;
  bool terminal, lineOpen = false;
  int64_t lastShown = 0;
};

} // namespace pcrt

#endif // PCRT_CORE_METRICS_H
