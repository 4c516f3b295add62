//===- StepInputs.h - what a step reads besides its state ------------------===//
#ifndef PCRT_CORE_STEPINPUTS_H
#define PCRT_CORE_STEPINPUTS_H

#include "core/Data.h"
#include "device/Context.h"

namespace pcrt {

class StepInputs {
public:
  /// Of rank `rank`; `options` has its weight decay. Throws as BatchLoader.
  StepInputs(const Program &program, const Options &options, const TokenData &tokens, int rank)
      : program(program), options(options), rank(rank), loader(program, tokens, rank), inputs(program.inputs.size()) {}

  /// Writes all but the hyperparameters of step `step`, whose first row is sample `sample`, to where `device` reads
  /// them: also while it runs the step before. Throws as BatchLoader::fill.
  void fill(Device &device, int64_t step, int64_t sample);

  /// Writes the hyperparameters of the step that was filled last.
  void writeHyper(int64_t step, float normLimit);

private:
  /// What the step's dropouts draw by.
  void writeRandom(int64_t step);

  const Program &program;
  const Options &options;
  int rank;
  BatchLoader loader;
  std::vector<char *> inputs; ///< By input of the program.
};

} // namespace pcrt

#endif // PCRT_CORE_STEPINPUTS_H
