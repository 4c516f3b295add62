//===- Validation.cpp - the loss of samples that are not trained on --------===//
#include "core/Validation.h"

#include <algorithm>

using namespace pcrt;

Validation::Validation(const Options &options, const Program &program, int rank)
    : every(options.evalEvery), last(options.steps),
      tokens(options, program.sequence, /*training=*/false, program.targetSequence), loader(program, tokens, rank),
      inputs(program.inputs.size()) {
  batches = std::max<int64_t>(tokens.windows() / program.batch, 1);
  if (options.evalBatches)
    batches = std::min(batches, *options.evalBatches);
}

std::optional<Validation::Figures> Validation::evaluate(pcrt_context &context, Outputs &outputs, int64_t steps,
                                                        StopCheck &stop) {
  const Program &program = context.program;
  int64_t start = nanoseconds();
  // What is counted and traced is that of steps.
  std::vector<int64_t> moves = context.moveCounts, messages = context.flowCounts;
  context.profile.pause(true);
  double sum = 0;
  int64_t done = 0;
  for (; done < batches && !stop.hasSignal(); ++done) {
    for (size_t i = 0; i < inputs.size(); ++i)
      inputs[i] = context.device->input(steps, int(i));
    loader.fill(done * program.batch, inputs.data());
    outputs.beginStep(std::nullopt);
    context.require(context.device->evaluate(context));
    outputs.endStep(loader.counted());
    sum += outputs.loss();
  }
  context.profile.pause(false);
  context.moveCounts = moves;
  context.flowCounts = messages;
  if (done < batches)
    return std::nullopt;
  return Figures{sum / double(batches), batches * program.batch, double(nanoseconds() - start) * 1e-9};
}
