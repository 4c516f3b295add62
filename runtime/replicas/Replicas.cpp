//===- Replicas.cpp - Checks that copies are equal ------------------------===//
// Each rank computes a checksum and an identity of every block that it holds; all ranks gather these, and a rank
// compares its sums with the sums of the lowest rank that has the same blocks. The message names the tensor and both
// ranks.
//===----------------------------------------------------------------------===//
#include "replicas/Replicas.h"
#include "base/Block.h"
#include "base/Failure.h"
#include "base/TensorSum.h"
#include "base/Types.h"
#include "comm/Collective.h"

#include <algorithm>
#include <functional>
#include <map>

using namespace pcrt;

namespace {

/// A block that a rank holds: the identity of the block, and the checksum of its contents.
struct Copy {
  uint64_t which = 0;
  TensorSum bits;
};

/// The blocks of state that a rank holds, and their names.
struct Copies {
  std::vector<std::string> names;
  std::vector<Copy> all;
};

} // namespace

static Copies copiesOf(const Program &program, Device &device, int rank) {
  Copies copies;
  auto add = [&](const Tensor &tensor, const std::string &kind, const Parameter &parameter) {
    if (!tensor.isOn(program.mesh, rank))
      return;
    Block block = blockOf(program.mesh, tensor.shape, tensor.layout, rank);
    std::string name = kind;
    if (tensor.varies)
      name += "of replica " + std::to_string(program.replicaOf(rank)) + " ";
    for (const Part &part : parameter.parts)
      name += (&part == &parameter.parts.front() ? "" : ", ") + part.source + describe(part.box.start);
    name += ", of it from " + describe(block.start) + " " + describe(block.size);
    int64_t bytes = block.elements() * elementBytes(tensor.dtype);
    HostBlock host(device, tensor.offset, bytes, HostBlock::Read);
    copies.all.push_back({std::hash<std::string>()(name), sumOfBytes(host.data(), bytes)});
    copies.names.push_back(std::move(name));
  };
  for (const Parameter &parameter : program.parameters)
    add(parameter, "", parameter);
  for (const State &state : program.states)
    add(state, state.name + " of ", program.parameters[state.parameter]);
  return copies;
}

void pcrt::checkReplicas(const Program &program, Device &device, Comm &comm, int64_t steps) {
  Copies mine;
  onAllRanks(comm, [&] { mine = copiesOf(program, device, comm.rank()); });
  auto count = int64_t(mine.all.size());
  std::vector<int64_t> counts(comm.size());
  requireOk(comm, comm.allGatherBytes(&count, sizeof count, counts.data()));
  size_t most = *std::max_element(counts.begin(), counts.end());
  std::vector<Copy> all(most * comm.size());
  mine.all.resize(most); // stages have different numbers of tensors
  requireOk(comm, comm.allGatherBytes(mine.all.data(), int64_t(most * sizeof(Copy)), all.data()));

  auto at = [&](int rank, size_t i) -> const Copy & { return all[rank * most + i]; };
  std::map<uint64_t, std::pair<int, TensorSum>> first; // the lowest rank that has a block
  for (int rank = 0; rank < comm.size(); ++rank)
    for (int64_t i = 0; i < counts[rank]; ++i)
      first.insert({at(rank, i).which, {rank, at(rank, i).bits}});
  onAllRanks(comm, [&] {
    for (int64_t i = 0; i < count; ++i) {
      const Copy &copy = mine.all[i];
      const auto &[rank, bits] = first.at(copy.which);
      if (!(copy.bits == bits))
        fail(PCRT_BAD_DATA,
             "after step " + std::to_string(steps) + " rank " + std::to_string(comm.rank()) +
                 " has different bits than rank " + std::to_string(rank) +
                 " in a tensor that both hold: " + mine.names[i] +
                 "; the memory of one of them or their connection is faulty, so continue from an earlier checkpoint");
    }
  });
}
