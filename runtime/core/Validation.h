//===- Validation.h - the loss of samples that are not trained on ----------===//
//
// --eval-every N: before every N-th step, and behind the last one, the loss of
// samples that --validation holds out, by the program's evaluation (pcrt.h). It
// changes neither parameters nor states, so a run with it makes the same steps.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_CORE_VALIDATION_H
#define PCRT_CORE_VALIDATION_H

#include "core/Data.h"
#include "core/Outputs.h"
#include "core/Stop.h"

namespace pcrt {

class Validation {
public:
  struct Figures {
    double loss = 0; ///< The mean of all samples.
    int64_t samples = 0;
    double seconds = 0;
  };

  /// Opens the files. Throws as TokenData.
  Validation(const Options &options, const Program &program, int rank);

  /// Whether the loss of the state behind `steps` steps is asked for.
  bool isTurn(int64_t steps) const { return steps % every == 0 || steps == last; }

  /// That loss, of the first samples held out, always the same ones: of all that make whole batches, or of as many
  /// batches as --eval-batches says. Nothing if a signal is to end the run. All ranks call it between two steps; what
  /// the next step reads has to be written anew.
  std::optional<Figures> evaluate(pcrt_context &context, Outputs &outputs, int64_t steps, StopCheck &stop);

private:
  int64_t every, last;
  int64_t batches = 0;
  TokenData tokens;
  BatchLoader loader;
  std::vector<char *> inputs; ///< By input of the program.
};

} // namespace pcrt

#endif // PCRT_CORE_VALIDATION_H
