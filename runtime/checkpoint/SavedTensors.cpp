//===- SavedTensors.cpp - The tensors of a checkpoint and their files -----===//
// A checkpoint of an adapter lacks the parameters of its base.
//===----------------------------------------------------------------------===//
#include "checkpoint/SavedTensors.h"
#include "comm/Collective.h"
#include "pcrt/description.h"

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
  for (const State &state : program.states) {
    const Parameter &parameter = program.parameters[state.parameter];
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
