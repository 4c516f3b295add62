//===- Validation.h - The loss of validation samples ----------------------===//
// Every few steps, and after the last one, the program's evaluation (pcrt.h) computes the loss of the samples that
// --validation holds out. It changes neither parameters nor states, so a run with it makes the same steps. The loss of
// samples is the sum over all of their targets that count, divided by the number of these, with each sample once: it is
// the same for every batch and plan.
//===----------------------------------------------------------------------===//
#ifndef PCRT_RUN_VALIDATION_H
#define PCRT_RUN_VALIDATION_H

#include "data/Samples.h"
#include "metrics/Outputs.h"
#include "run/Stop.h"

namespace pcrt {

/// The batches of an evaluation, which have each sample once. If the last batch has fewer samples than rows,
/// Loader::fill repeats samples. A program without weights of targets reads the last samples in several batches, so
/// that the number of samples in each divides the number of rows.
class EvaluationBatches {
public:
  /// Makes batches of the samples of `data`, at most `most` batches.
  EvaluationBatches(const Program &program, const SampleData &data, std::optional<int64_t> most);

  int64_t count() const { return full + int64_t(rest.size()); }
  int64_t samples() const { return all; }
  Samples at(int64_t i) const { return i < full ? Samples{i * batch, batch} : rest[size_t(i - full)]; }

private:
  int64_t batch, all, full;
  std::vector<Samples> rest;
};

/// Turns the losses of batches, each of which is the mean over its targets, into the mean over all targets.
class LossOfTargets {
public:
  void add(double loss, int64_t targets) {
    if (targets)
      sum += loss * double(targets);
    count += targets;
  }
  int64_t targets() const { return count; }
  /// The mean. Throws PCRT_BAD_DATA if there is no target, naming the places of the first `samples` samples of
  /// `data`.
  double mean(const SampleData &data, int64_t samples) const;

private:
  double sum = 0;
  int64_t count = 0;
};

/// The evaluations of a run. Every rank has one and calls its methods in the same order.
class Validation {
public:
  /// The result of one evaluation.
  struct Figures {
    double loss = 0; ///< The mean of all targets that count.
    int64_t samples = 0;
    double seconds = 0;
  };

  /// Opens the files. Throws like openSamples.
  Validation(const Options &options, const Program &program, int rank);

  /// Whether there is an evaluation after `steps` steps.
  bool isTurn(int64_t steps) const { return steps % every == 0 || steps == last; }

  /// Computes the loss of all samples that are held out, or of the first --eval-batches batches of them. Returns
  /// nullopt if a signal ends the run. All ranks call it between two steps; the inputs of the next step must be written
  /// again. Throws like Loader::fill and LossOfTargets::mean, and the message says that it was in an evaluation.
  std::optional<Figures> evaluate(pcrt_context &context, Outputs &outputs, int64_t steps, StopCheck &stop);

private:
  int64_t every, last;
  std::unique_ptr<SampleData> data;
  EvaluationBatches batches;
  std::unique_ptr<Loader> loader;
  std::vector<char *> inputs; ///< The address of each input of the program.
};

} // namespace pcrt

#endif // PCRT_RUN_VALIDATION_H
