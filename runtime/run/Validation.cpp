//===- Validation.cpp - The loss of validation samples --------------------===//
// Runs the evaluation on the inputs of the next step. Counts of calls are restored afterwards and the profile is
// paused, because both are about steps.
//===----------------------------------------------------------------------===//
#include "run/Validation.h"
#include "base/Failure.h"

#include <algorithm>

using namespace pcrt;

EvaluationBatches::EvaluationBatches(const Program &program, const SampleData &data, std::optional<int64_t> most)
    : batch(program.batch), all(data.windows()) {
  if (SampleData::File first = data.filesRead()[0]; all == 0)
    fail(PCRT_BAD_DATA, first.path + ": its " + std::to_string(first.count) + " tokens are fewer than a sample of " +
                            std::to_string(program.sequence) +
                            " tokens and its last target, so there is nothing to evaluate");
  if (most && *most < all / batch + 1)
    all = std::min(all, *most * batch);
  full = all / batch;
  for (int64_t done = full * batch; done < all;) {
    int64_t count = all - done;
    if (!hasInput(program, "loss_weights"))
      while (batch % count)
        --count;
    rest.push_back({done, count});
    done += count;
  }
}

double LossOfTargets::mean(const SampleData &data, int64_t samples) const {
  if (count == 0)
    fail(PCRT_BAD_DATA, "there is no target to predict (all are " + std::to_string(noTarget) + ") in " +
                            data.describe(0, samples) + ", so these samples have no loss");
  return sum / double(count);
}

Validation::Validation(const Options &options, const Program &program, int rank)
    : every(options.evalEvery), last(options.steps), data(openSamples(options, program, /*training=*/false)),
      batches(program, *data, options.evalBatches), loader(data->loader(program, rank, MeanOver::Batch)),
      inputs(program.inputs.size()) {}

std::optional<Validation::Figures> Validation::evaluate(pcrt_context &context, Outputs &outputs, int64_t steps,
                                                        StopCheck &stop) {
  int64_t start = nanoseconds();
  pcrt_context::Counts ofStep;
  context.saveCounts(ofStep);
  context.profile.pause(true);
  LossOfTargets loss;
  int64_t done = 0;
  try {
    for (; done < batches.count() && !stop.hasSignal(); ++done) {
      for (size_t i = 0; i < inputs.size(); ++i)
        inputs[i] = context.device->input(steps, int(i));
      loader->fill(batches.at(done), inputs.data());
      outputs.beginStep(std::nullopt);
      context.require(context.device->evaluate(context, steps));
      outputs.endStep(loader->counted());
      loss.add(outputs.loss(), loader->counted()[0]);
    }
    context.profile.pause(false);
    context.restoreCounts(ofStep);
    if (done < batches.count())
      return std::nullopt;
    return Figures{loss.mean(*data, batches.samples()), batches.samples(), double(nanoseconds() - start) * 1e-9};
  } catch (const Failure &failure) {
    if (failure.status != PCRT_BAD_DATA)
      throw;
    fail(failure.status, "evaluation after " + std::to_string(steps) + " steps: " + failure.message);
  }
}
