//===- Rounds.cpp - Rounds of local SGD -----------------------------------===//
// Parameters and their shared copies have the same layout, so a rank copies its own blocks.
//===----------------------------------------------------------------------===//
#include "replicas/Rounds.h"
#include "base/Types.h"
#include "pcrt/description.h"

#include <cstring>
#include <utility>

using namespace pcrt;

/// Copies a block of f32 between two tensors of the same layout.
static void copy(const Program &program, Device &device, int rank, const Tensor &from, const Tensor &to) {
  int64_t bytes = blockOf(program.mesh, from.shape, from.layout, rank).elements() * elementBytes(from.dtype);
  HostBlock source(device, from.offset, bytes, HostBlock::Read), target(device, to.offset, bytes, HostBlock::Write);
  memcpy(target.data(), source.data(), size_t(bytes));
  target.store();
}

void pcrt::shareParameters(const Program &program, Device &device, int rank) {
  for (const Parameter &parameter : program.parameters)
    if (!parameter.frozen)
      copy(program, device, rank, parameter, *program.stateOf(parameter, PCRT_SHARED));
}

void pcrt::takeShared(const Program &program, Device &device, int rank) {
  for (const Parameter &parameter : program.parameters)
    if (!parameter.frozen)
      copy(program, device, rank, *program.stateOf(parameter, PCRT_SHARED), parameter);
}

std::string pcrt::describeRounds(const Program &program) {
  const Program::Rounds &rounds = program.rounds;
  return rounds.any() ? "every " + std::to_string(rounds.every) + " steps, rate " + Json(rounds.rate).dump() +
                            ", momentum " + Json(rounds.momentum).dump() + (rounds.codes ? ", deltas of 8 bits" : "")
                      : "none";
}

void pcrt::endRound(pcrt_context &context) {
  std::vector<int64_t> ofStep(context.moveCounts.size());
  ofStep.swap(context.moveCounts);
  pcrt_status status = context.device->endRound(context);
  context.roundCounts = std::exchange(context.moveCounts, std::move(ofStep));
  context.require(status);
}
