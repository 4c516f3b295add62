//===- StepInputs.cpp - The inputs of a step ------------------------------===//
// Hyperparameters are written as late as possible, because the limit of the norm depends on the step before.
//===----------------------------------------------------------------------===//
#include "data/StepInputs.h"
#include "base/Failure.h"
#include "pcrt/description.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace pcrt;

StepInputs::StepInputs(const Program &program, const Options &options, const SampleData &samples, int rank)
    : program(program), options(options), data(samples), rank(rank),
      loader(data.loader(program, rank, program.training ? MeanOver::Replica : MeanOver::Batch)),
      inputs(program.inputs.size()) {
  if (program.training && rank == 0 && data.windows() < program.batch)
    fprintf(stderr,
            "pc: remark: --data %s has only %lld training %s, but a batch needs %lld; samples repeat within a step\n",
            options.data.c_str(), (long long)data.windows(), data.what().c_str(), (long long)program.batch);
}

/// Returns true if a limit of the gradient's norm decides if a step updates anything.
static bool skipsSteps(const Program &program) {
  return std::any_of(program.stages.begin(), program.stages.end(), [](const Program *stage) {
    return std::any_of(stage->outputs.begin(), stage->outputs.end(),
                       [](const Output &output) { return output.kind == "grad_norm"; });
  });
}

void StepInputs::fill(Device &device, int64_t step, Samples samples) {
  for (size_t i = 0; i < inputs.size(); ++i)
    inputs[i] = device.input(step, int(i));
  loader->fill(samples, inputs.data());
  if (program.training && !skipsSteps(program) && std::count(counted().begin(), counted().end(), 0))
    fail(PCRT_BAD_DATA, "step " + std::to_string(step) + ": there is no target to predict in " +
                            data.describe(samples.first, samples.count) +
                            ", and this program cannot skip steps because it computes no gradient norm");
  writeRandom(step);
}

void StepInputs::warnOfNoTargets(int64_t step, Samples samples) const {
  auto replicas = int64_t(counted().size()), none = std::count(counted().begin(), counted().end(), 0);
  int64_t rows = program.batch / replicas;
  auto warn = [&](int64_t first, int64_t rows, const std::string &who) {
    fprintf(stderr, "pc: warning: step %lld: there is no target to predict (all are %d) in %s; %s skipped\n",
            (long long)step, noTarget, data.describe(first, rows).c_str(), who.c_str());
  };
  if (none == replicas)
    return warn(samples.first, samples.count, "the step is");
  for (int64_t replica = 0; replica < replicas; ++replica)
    if (counted()[size_t(replica)] == 0)
      warn(samples.first + replica * rows, rows, "on replica " + std::to_string(replica) + " the step is");
}

void StepInputs::writeHyper(int64_t step, float normLimit) {
  double t = double(step + 1);
  if (counted()[size_t(program.replicaOf(rank))] == 0)
    normLimit = 0; // no norm is below it, so nothing is updated
  for (size_t input = 0; input < program.inputs.size(); ++input) {
    if (program.inputs[input].kind != "hyper")
      continue;
    auto *hyper = reinterpret_cast<float *>(inputs[input]);
    const ParameterGroup &group = program.inputs[input].group;
    double beta1 = group.beta1.value_or(options.beta1), beta2 = group.beta2.value_or(options.beta2);
    hyper[PCRT_HYPER_LR] = float(options.rateAt(step) * group.lrFactor);
    hyper[PCRT_HYPER_BETA1] = float(beta1);
    hyper[PCRT_HYPER_BETA2] = float(beta2);
    hyper[PCRT_HYPER_EPS] = float(group.eps.value_or(options.eps));
    hyper[PCRT_HYPER_WEIGHT_DECAY] = float(group.decay.value_or(*options.weightDecay * group.decayFactor));
    hyper[PCRT_HYPER_CORRECTION1] = float(1 - std::pow(beta1, t));
    hyper[PCRT_HYPER_CORRECTION2] = float(1 - std::pow(beta2, t));
    hyper[PCRT_HYPER_CLIP] = float(options.clip);
    hyper[PCRT_HYPER_NORM_LIMIT] = normLimit;
  }
}

void StepInputs::writeRandom(int64_t step) {
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const Input &input = program.inputs[i];
    if (input.kind != "random")
      continue;
    auto *words = reinterpret_cast<int32_t *>(inputs[i]);
    for (int64_t microbatch = 0; microbatch < program.microbatches; ++microbatch, words += PCRT_RANDOM_COUNT) {
      words[PCRT_RANDOM_SEED_LOW] = int32_t(options.seed);
      words[PCRT_RANDOM_SEED_HIGH] = int32_t(uint64_t(options.seed) >> 32);
      words[PCRT_RANDOM_STEP] = int32_t(step);
      words[PCRT_RANDOM_KEY] = int32_t(input.key);
      int64_t rows = program.batch / program.microbatches / program.rounds.replicas;
      words[PCRT_RANDOM_ROW] = int32_t(rowOf(program, microbatch, program.replicaOf(rank) * rows));
    }
  }
}
