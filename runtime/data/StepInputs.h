//===- StepInputs.h - What a step reads besides its state -----------------===//
#ifndef PCRT_DATA_STEPINPUTS_H
#define PCRT_DATA_STEPINPUTS_H

#include "data/Data.h"
#include "device/Context.h"

namespace pcrt {

class StepInputs {
public:
  /// Makes the inputs of rank `rank`; `options` has the weight decay. Warns on rank 0 if there are fewer samples than a
  /// batch has. Throws as BatchLoader.
  StepInputs(const Program &program, const Options &options, const TokenData &tokens, int rank);

  /// Writes all but the hyperparameters of step `step`, whose batch is `samples`, to where `device` reads
  /// them: also while it runs the step before. Throws as BatchLoader::fill, and PCRT_BAD_DATA if no target counts in a
  /// program that cannot skip steps.
  void fill(Device &device, int64_t step, Samples samples);

  /// How many targets of that step count, by replica of local SGD: where there are none the replica skips the step.
  const std::vector<int64_t> &counted() const { return loader.counted(); }

  /// Names the samples of that step, or of its replicas, of which no target counts: they update nothing.
  void warnOfNoTargets(int64_t step, Samples samples) const;

  /// Writes the hyperparameters of the step that was filled last. One whose norm is not below `normLimit` is skipped.
  void writeHyper(int64_t step, float normLimit);

private:
  /// What the step's dropouts draw by.
  void writeRandom(int64_t step);

  const Program &program;
  const Options &options;
  const TokenData &tokens;
  int rank;
  BatchLoader loader;
  std::vector<char *> inputs; ///< By input of the program.
};

} // namespace pcrt

#endif // PCRT_DATA_STEPINPUTS_H
