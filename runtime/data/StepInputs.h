//===- StepInputs.h - The inputs of a step --------------------------------===//
// Everything that a step reads besides parameters and states: the batch, the random bits of its dropouts, and
// hyperparameters.
//===----------------------------------------------------------------------===//
#ifndef PCRT_DATA_STEPINPUTS_H
#define PCRT_DATA_STEPINPUTS_H

#include "data/Samples.h"
#include "device/Context.h"

namespace pcrt {

/// Writes the inputs of one rank. A StepInputs borrows program, options and tokens. The rank's thread uses it.
class StepInputs {
public:
  /// `options` has the weight decay. Warns on rank 0 if there are fewer samples than a batch has. Throws like
  /// SampleData::loader.
  StepInputs(const Program &program, const Options &options, const SampleData &samples, int rank);

  /// Writes everything except the hyperparameters of step `step`, whose batch is `samples`, to the device's inputs. It
  /// may be called while the step before runs. Throws like Loader::fill, and PCRT_BAD_DATA if no target counts in
  /// a program that cannot skip steps.
  void fill(Device &device, int64_t step, Samples samples);

  /// Returns the number of targets of that step that count, for each replica of local SGD. A replica without such a
  /// target skips the step.
  const std::vector<int64_t> &counted() const { return loader->counted(); }

  /// Warns about samples of that step, or of its replicas, in which no target counts. Such samples update nothing.
  void warnOfNoTargets(int64_t step, Samples samples) const;

  /// Writes the hyperparameters of the step that was filled last. The step is skipped if its norm is not below
  /// `normLimit`.
  void writeHyper(int64_t step, float normLimit);

private:
  /// Writes the words from which the step's dropouts draw.
  void writeRandom(int64_t step);

  const Program &program;
  const Options &options;
  const SampleData &data;
  int rank;
  std::unique_ptr<Loader> loader;
  std::vector<char *> inputs; ///< By input of the program.
};

} // namespace pcrt

#endif // PCRT_DATA_STEPINPUTS_H
