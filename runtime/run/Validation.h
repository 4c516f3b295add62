//===- Validation.h - The loss of samples that are not trained on ---------===//
// Every few steps, and after the last one, computes the loss of the samples that --validation holds out, by the
// program's evaluation (pcrt.h). It changes neither parameters nor states, so a run with it makes the same steps.
//
// A loss of samples is the sum over all of their targets that count by the number of these, with each sample once: the
// same for every batch and plan.
//===----------------------------------------------------------------------===//
#ifndef PCRT_RUN_VALIDATION_H
#define PCRT_RUN_VALIDATION_H

#include "data/Data.h"
#include "metrics/Outputs.h"
#include "run/Stop.h"

namespace pcrt {

/// The batches of an evaluation, which have each sample once. The last one is filled up as BatchLoader::fill says; a
/// program without weights of targets takes the remaining samples in several batches, each of as many samples as
/// divide its rows.
class EvaluationBatches {
public:
  /// Makes batches of the samples of `tokens`, at most `most` batches.
  EvaluationBatches(const Program &program, const TokenData &tokens, std::optional<int64_t> most);

  int64_t count() const { return full + int64_t(rest.size()); }
  int64_t samples() const { return all; }
  Samples at(int64_t i) const { return i < full ? Samples{i * batch, batch} : rest[size_t(i - full)]; }

private:
  int64_t batch, all, full;
  std::vector<Samples> rest;
};

/// The mean over targets of batches whose losses are means over theirs.
class LossOfTargets {
public:
  void add(double loss, int64_t targets) {
    if (targets)
      sum += loss * double(targets);
    count += targets;
  }
  int64_t targets() const { return count; }
  /// Throws PCRT_BAD_DATA if there is no target, with where they are: `tokens` says it of the first `samples` ones.
  double mean(const TokenData &tokens, int64_t samples) const;

private:
  double sum = 0;
  int64_t count = 0;
};

class Validation {
public:
  struct Figures {
    double loss = 0; ///< The mean of all targets that count.
    int64_t samples = 0;
    double seconds = 0;
  };

  /// Opens the files. Throws as TokenData.
  Validation(const Options &options, const Program &program, int rank);

  /// Whether the loss of the state after `steps` steps is asked for.
  bool isTurn(int64_t steps) const { return steps % every == 0 || steps == last; }

  /// That loss, of all samples held out, or of as many as --eval-batches batches of them have, always the same ones.
  /// Nothing if a signal is to end the run. All ranks call it between two steps; what the next step reads has to be
  /// written anew. Throws as BatchLoader::fill and LossOfTargets::mean, saying that it is an evaluation.
  std::optional<Figures> evaluate(pcrt_context &context, Outputs &outputs, int64_t steps, StopCheck &stop);

private:
  int64_t every, last;
  TokenData tokens;
  EvaluationBatches batches;
  BatchLoader loader;
  std::vector<char *> inputs; ///< By input of the program.
};

} // namespace pcrt

#endif // PCRT_RUN_VALIDATION_H
