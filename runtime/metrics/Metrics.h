//===- Metrics.h - What is told about every step --------------------------===//
// Rank 0 writes one line of JSON a step (--metrics) and a progress line to standard output: rewritten on a terminal, as
// far as it is wide, else at most one a second.
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

struct StepFigures {
  int64_t step = 0;               ///< Counted from 0.
  std::optional<double> loss;     ///< None where no target counts: then the step was skipped.
  std::optional<double> gradNorm; ///< Where the program computes it.
  double lr = 0;
  int64_t tokens = 0; ///< Of this step.
  double seconds = 0;
  double inMoves = 0;   ///< Of these, rank 0 in moves and messages: waiting for others, mostly.
  bool skipped = false; ///< It updated nothing.
};

/// What every step of a program is.
struct StepWork {
  double flops = 0;       ///< Of one rank; 0: not known.
  double peakSeconds = 0; ///< As secondsAtPeak says; 0: not known.
  int64_t arenaBytes = 0; ///< Of a rank.

  /// The work of one of `ranks` ranks, by what the program's report says.
  static StepWork of(const Program &program, int ranks);
};

class Metrics {
public:
  /// `path` is of lines of JSON, `events` the directory of an EventFile; empty: without. What is in the file stays
  /// until begin. Throws PCRT_RESOURCE.
  Metrics(const std::string &path, const std::string &events, int64_t steps, const StepWork &work);
  ~Metrics();
  Metrics(const Metrics &) = delete;
  Metrics &operator=(const Metrics &) = delete;

  /// Before the first step: lines of the steps before `firstStep` stay. Throws PCRT_RESOURCE, and PCRT_USAGE if the
  /// file holds anything else than metrics and would lose it.
  void begin(int64_t firstStep);
  /// What cannot be written is a warning (AuxiliaryFile).
  void add(const StepFigures &figures);
  /// The loss of samples that are not trained on, of the state after `step` steps.
  void addValidation(int64_t step, double loss, int64_t samples, double seconds);
  /// Ends the progress line.
  void finish();

private:
  /// MFU: what the model needs of the step, at the machine's peak, by what the step took; 0: not known.
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
  std::optional<double> validation;     ///< The last one's loss.
  StepFigures lastStep;                 ///< add's.
  int64_t firstStep = 0, startTime = 0; ///< begin's.
};

} // namespace pcrt

#endif // PCRT_METRICS_METRICS_H
