//===- KeptMemory.cpp - The state of training outlives a rank's process ---===//
// A process can be killed between any two instructions. So a state is marked invalid (steps 0) before its bytes change,
// and valid (1 + its steps) afterwards. newest() asks all ranks: one rank may have done its update while another one is
// in the middle of it, and has only the copy from before.
//===----------------------------------------------------------------------===//
#include "checkpoint/KeptMemory.h"
#include "base/Block.h"
#include "base/Failure.h"
#include "base/Types.h"
#include "comm/Collective.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

using namespace pcrt;

KeptMemory::KeptMemory(const Program &program, std::string programSum, Comm &comm, int64_t every)
    : program(program), programSum(std::move(programSum)), comm(comm), every(every),
      kept(program.training && program.abi.target == PCRT_CPU && !keepsOnDisk(program) ? comm.kept() : nullptr) {
  if (every && keepsOnDisk(program))
    fail(PCRT_USAGE, "--snapshot copies the state in memory, but this program keeps part of its state on disk; use "
                     "--checkpoint DIR");
  if (every && !kept)
    fail(PCRT_USAGE, std::string("--snapshot needs CPU ranks started by pc-run and connected by shared memory, but "
                                 "this run uses the transport ") +
                         comm.transport());
}

int64_t KeptMemory::newest() {
  int64_t mine[2] = {-1, -1}; // in the arena, in the copy
  if (kept && comm.hasOldArena() && programSum == kept->program) {
    mine[0] = kept->updating ? -1 : kept->arena.steps - 1;
    mine[1] = every ? kept->copy.steps - 1 : -1;
  }
  std::vector<int64_t> all(2 * comm.size());
  requireOk(comm, comm.allGatherBytes(mine, sizeof mine, all.data()));
  auto onAll = [&](int64_t steps) {
    for (int rank = 0; rank < comm.size(); ++rank)
      if (all[2 * rank] != steps && all[2 * rank + 1] != steps)
        return int64_t(-1);
    return steps;
  };
  int64_t arena = onAll(mine[0]), copied = onAll(mine[1]);
  fromCopy = copied > arena;
  return std::max(arena, copied);
}

NormLimit::History KeptMemory::history() const {
  const KeptState &state = fromCopy ? kept->copy : kept->arena;
  return {{state.norms, state.norms + state.numNorms}, state.skipped};
}

/// Calls f(offset in the arena, bytes) for this rank's part of every parameter and state.
template <typename F> static void forEachBlock(const Program &program, int rank, F f) {
  auto add = [&](const Tensor &tensor) {
    f(tensor.offset, blockOf(program.mesh, tensor.shape, tensor.layout, rank).elements() * elementBytes(tensor.dtype));
  };
  std::for_each(program.parameters.begin(), program.parameters.end(), add);
  std::for_each(program.states.begin(), program.states.end(), add);
}

int64_t KeptMemory::copyBytes() const {
  int64_t bytes = 0;
  if (every)
    forEachBlock(program, comm.rank(), [&](int64_t, int64_t more) { bytes += more; });
  return bytes;
}

void KeptMemory::copy(char *arena, Pool &pool, Direction direction) const {
  char *at = arena + program.abi.arena_bytes;
  forEachBlock(program, comm.rank(), [&](int64_t offset, int64_t bytes) {
    char *to = direction == ToCopy ? at : arena + offset, *from = direction == ToCopy ? arena + offset : at;
    pool.ranges(bytes, [&](int, int64_t lo, int64_t hi) { memcpy(to + lo, from + lo, size_t(hi - lo)); });
    at += bytes;
  });
}

void KeptMemory::restore(char *arena, Pool &pool) {
  if (!fromCopy)
    return;
  kept->arena.steps = 0;
  copy(arena, pool, FromCopy);
}

void KeptMemory::forget() {
  if (!kept)
    return;
  kept->arena.steps = 0;
  kept->copy.steps = 0;
}

void KeptMemory::note(int64_t steps, const NormLimit::History &history) {
  if (!kept)
    return;
  kept->updating = 1; // until all of it is there
  snprintf(kept->program, sizeof kept->program, "%s", programSum.c_str());
  KeptState &state = kept->arena;
  std::copy(history.norms.begin(), history.norms.end(), state.norms);
  state.numNorms = int32_t(history.norms.size());
  state.skipped = int32_t(history.skipped);
  state.steps = 1 + steps;
  kept->updating = 0;
}

void KeptMemory::copyBeforeUpdate(char *arena, Pool &pool) {
  if (!kept || !every || (kept->arena.steps - 1) % every != 0)
    return;
  kept->copy.steps = 0; // while it is made, the arena is what counts
  copy(arena, pool, ToCopy);
  memcpy(kept->copy.norms, kept->arena.norms, sizeof kept->copy.norms);
  kept->copy.numNorms = kept->arena.numNorms;
  kept->copy.skipped = kept->arena.skipped;
  kept->copy.steps = kept->arena.steps.load();
}
