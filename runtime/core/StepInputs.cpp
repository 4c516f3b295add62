//===- StepInputs.cpp - what a step reads besides its state ----------------===//
#include "core/StepInputs.h"
#include "pcrt/description.h"

#include <cmath>

using namespace pcrt;

void StepInputs::fill(Device &device, int64_t step, int64_t sample) {
  for (size_t i = 0; i < inputs.size(); ++i)
    inputs[i] = device.input(step, int(i));
  loader.fill(sample, inputs.data());
  writeRandom(step);
}

void StepInputs::writeHyper(int64_t step, float normLimit) {
  double t = double(step + 1);
  for (size_t input = 0; input < program.inputs.size(); ++input) {
    if (program.inputs[input].kind != "hyper")
      continue;
    auto *hyper = reinterpret_cast<float *>(inputs[input]);
    hyper[PCRT_HYPER_LR] = float(options.rateAt(step));
    hyper[PCRT_HYPER_BETA1] = float(options.beta1);
    hyper[PCRT_HYPER_BETA2] = float(options.beta2);
    hyper[PCRT_HYPER_EPS] = float(options.eps);
    hyper[PCRT_HYPER_WEIGHT_DECAY] = float(*options.weightDecay);
    hyper[PCRT_HYPER_CORRECTION1] = float(1 - std::pow(options.beta1, t));
    hyper[PCRT_HYPER_CORRECTION2] = float(1 - std::pow(options.beta2, t));
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
