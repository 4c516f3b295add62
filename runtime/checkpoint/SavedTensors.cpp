//===- SavedTensors.cpp - The tensors of a checkpoint and their files -----===//
// A checkpoint of an adapter lacks the parameters of its base.
//===----------------------------------------------------------------------===//
#include "checkpoint/SavedTensors.h"
#include "comm/Collective.h"
#include "pcrt/description.h"

#include <algorithm>

using namespace pcrt;

/// "exp_avg@1."
static std::string ofReplica(const std::string &name, int64_t replica) {
  return name + "@" + std::to_string(replica) + ".";
}

std::vector<Saved> pcrt::savedTensors(const Program &program, int64_t step, int64_t replicas) {
  std::vector<Saved> saved;
  const Program::Rounds &rounds = program.rounds;
  for (const Parameter &parameter : program.parameters)
    if (parameter.isAdapter() != program.hasAdapter())
      continue;
    else if (!rounds.any() || parameter.frozen)
      saved.push_back({&parameter, &parameter, &parameter.parts, true, ""});
    else if (!rounds.endsAfter(step))
      for (int64_t replica = 0; replica < replicas; ++replica)
        saved.push_back({&parameter, &parameter, &parameter.parts, false, ofReplica("parameter", replica), replica});
  if (averages(program))
    for (const Parameter &parameter : program.parameters) { // the file has all weights
      const State *average = program.stateOf(parameter, PCRT_EMA);
      const Tensor *tensor = average ? static_cast<const Tensor *>(average) : &parameter;
      saved.push_back({tensor, &parameter, &parameter.parts, false, "", -1, true});
    }
  for (const State &state : program.states) {
    const Parameter &parameter = program.parameters[state.parameter];
    if (state.name == PCRT_EMA)
      continue;
    if (rounds.any() && state.name == PCRT_SHARED)
      saved.push_back({&state, &parameter, &state.parts, true, ""});
    else if (!state.varies)
      saved.push_back({&state, &parameter, &state.parts, false, state.name + "."});
    else
      for (int64_t replica = 0; replica < replicas; ++replica)
        saved.push_back({&state, &parameter, &state.parts, false, ofReplica(state.name, replica), replica});
  }
  return saved;
}

bool pcrt::averages(const Program &program) {
  return std::any_of(program.stages.begin(), program.stages.end(), [](const Program *stage) {
    return std::any_of(stage->states.begin(), stage->states.end(),
                       [](const State &state) { return state.name == PCRT_EMA; });
  });
}

void pcrt::addUp(TensorSums &sums, Comm &comm) {
  std::vector<TensorSum> mine, all(sums.size() * comm.size());
  for (auto &[name, sum] : sums)
    mine.push_back(sum);
  requireOk(comm, comm.allGatherBytes(mine.data(), int64_t(mine.size() * sizeof mine[0]), all.data()));
  size_t tensor = 0;
  for (auto &[name, sum] : sums) {
    sum = {};
    for (int rank = 0; rank < comm.size(); ++rank)
      sum += all[rank * mine.size() + tensor];
    ++tensor;
  }
}
