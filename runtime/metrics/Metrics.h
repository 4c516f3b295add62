//===- Metrics.h - The metrics of every step ------------------------------===//
// Rank 0 writes one line of JSON per step (--metrics) and a progress line to standard output. On a terminal the line is
// rewritten, and shows as much as fits; elsewhere there is at most one line per second.
//===----------------------------------------------------------------------===//
#ifndef PCRT_METRICS_METRICS_H
#define PCRT_METRICS_METRICS_H

#include "base/Program.h"
#include "metrics/AuxiliaryFile.h"
#include "metrics/EventFile.h"

#include <cstdint>
#include <optional>
#include <string>

namespace pcrt {

/// The figures of one step.
struct StepFigures {
  int64_t step = 0;               ///< Counted from 0.
  std::optional<double> loss;     ///< Empty if no target counts; then the step was skipped.
  std::optional<double> gradNorm; ///< Empty if the program does not compute it.
  double lr = 0;
  int64_t tokens = 0; ///< The tokens of this step.
  double seconds = 0;
  double inMoves = 0;   ///< The part of these seconds that rank 0 spent in moves and messages, mostly waiting.
  bool skipped = false; ///< It updated nothing.
};

/// The work of every step of a program.
struct StepWork {
  double flops = 0;       ///< Floating point operations of one rank; 0: unknown.
  double peakSeconds = 0; ///< The result of secondsAtPeak; 0: unknown.
  int64_t arenaBytes = 0; ///< Bytes of a rank's arena.
  /// The work of one of `ranks` ranks, from the program's report.
  static StepWork of(const Program &program, int ranks);
};

/// Writes the metrics of a run. Only rank 0 has one; its thread uses it.
class Metrics {
public:
  /// `path` is the file of lines of JSON, `events` the directory of an EventFile; empty: there is none. The contents of
  /// the file stay until begin. Throws PCRT_RESOURCE.
  Metrics(const std::string &path, const std::string &events, int64_t steps, const StepWork &work);
  ~Metrics();
  Metrics(const Metrics &) = delete;
  Metrics &operator=(const Metrics &) = delete;

  /// Call it before the first step: keeps the lines of the steps before `firstStep`. Throws PCRT_RESOURCE, and
  /// PCRT_USAGE if the file holds anything other than metrics and would lose it.
  void begin(int64_t firstStep);
  /// Adds a step. A failed write is a warning (AuxiliaryFile).
  void add(const StepFigures &figures);
  /// Adds the loss of the validation samples after `step` steps.
  void addValidation(int64_t step, double loss, int64_t samples, double seconds);
  /// Ends the progress line.
  void finish();

private:
  /// The model flops utilization (MFU): the seconds that the model's work would take at the machine's peak, divided by
  /// the seconds of the step; 0: unknown.
  double partOfPeak(const StepFigures &figures) const;
  std::string timeLeft(int64_t done, int64_t now) const;
  void writeLine(const char *line, int length);
  void showProgress(const StepFigures &figures);

  std::string path;
  AuxiliaryFile lines;
  std::optional<EventFile> events;
  int64_t steps;
  StepWork work;
  bool terminal, lineOpen = false;
  int64_t lastShown = 0, skipped = 0;
  std::optional<double> validation;     ///< The last validation loss.
  StepFigures lastStep;                 ///< The last step of add.
  int64_t firstStep = 0, startTime = 0; ///< The step and time of begin.
};

} // namespace pcrt

#endif // PCRT_METRICS_METRICS_H
