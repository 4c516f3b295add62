//===- KeptMemory.cpp - The state of training outlives a rank's process ---===//
// A process can be killed between any two instructions. So a state is marked invalid (steps 0) before its bytes change,
// and valid (1 + its steps) afterwards. newest() asks all ranks: one rank may have finished its update while another
// one was killed in the middle of it and has only the copy from before.
//===----------------------------------------------------------------------===//
#include "checkpoint/KeptMemory.h"
#include "base/Failure.h"
#include "comm/Collective.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

using namespace pcrt;

KeptMemory::KeptMemory(const Program &program, std::string programSum, Comm &comm, int64_t every)
    : programSum(std::move(programSum)), comm(comm), every(every), onDevice(program.abi.target != PCRT_CPU),
      kept(program.training && !keepsOnDisk(program) && (every || !onDevice) ? comm.kept() : nullptr),
      image(program, comm.rank()) {
  if (every && keepsOnDisk(program))
    fail(PCRT_USAGE, "--snapshot copies the state in memory, but this program keeps part of its state on disk; use "
                     "--checkpoint DIR");
  if (every && !kept)
    fail(PCRT_USAGE, std::string("--snapshot needs ranks started by pc-run and connected by shared memory, but this "
                                 "run uses the transport ") +
                         comm.transport() + (onDevice ? "; run it on one machine with PCRT_TRANSPORT=shm" : ""));
}

int64_t KeptMemory::newest() {
  int64_t mine[2] = {-1, -1}; // the step in the arena (or in a device's first copy), and the step in the copy
  if (kept && comm.hasOldArena() && programSum == kept->program) {
    mine[0] = kept->updating && !onDevice ? -1 : kept->arena.steps - 1;
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
  if (kept)
    found = copied > arena ? &kept->copy : &kept->arena;
  return std::max(arena, copied);
}

NormLimit::History KeptMemory::history() const {
  return {{found->norms, found->norms + found->numNorms}, found->skipped};
}

void KeptMemory::restore(Device &device, Pool &pool) {
  if (!onDevice && found == &kept->arena)
    return;
  (found == &kept->copy ? kept->arena : kept->copy).steps = 0; // it may belong to a step that will be repeated
  const char *from = device.afterArena() + (onDevice && found == &kept->copy ? image.bytes() : 0);
  image.forEach([&](int64_t offset, int64_t place, int64_t bytes) {
    if (char *to = device.onHost(offset))
      pool.ranges(bytes, [&](int, int64_t lo, int64_t hi) { memcpy(to + lo, from + place + lo, size_t(hi - lo)); });
    else
      device.write(offset, from + place, bytes);
  });
}

void KeptMemory::forget() {
  if (!kept)
    return;
  kept->arena.steps = 0;
  kept->copy.steps = 0;
}

/// Records the values on which the state in the arena depends besides its bytes.
void KeptMemory::describe(KeptState &state) const {
  std::copy(lastNorms.norms.begin(), lastNorms.norms.end(), state.norms);
  state.numNorms = int32_t(lastNorms.norms.size());
  state.skipped = int32_t(lastNorms.skipped);
  state.steps = steps;
}

void KeptMemory::note(int64_t updates, const NormLimit::History &history) {
  if (!kept)
    return;
  steps = 1 + updates;
  lastNorms = history;
  kept->updating = 1; // until the whole description is written
  snprintf(kept->program, sizeof kept->program, "%s", programSum.c_str());
  if (!onDevice)
    describe(kept->arena);
  kept->updating = 0;
}

void KeptMemory::copyBeforeUpdate(Device &device) {
  if (onDevice || !isTurn())
    return;
  kept->copy.steps = 0; // while the copy is made, only the arena is valid
  char *to = device.afterArena();
  Pool &pool = *device.threads();
  image.forEach([&](int64_t offset, int64_t place, int64_t bytes) {
    const char *from = device.onHost(offset);
    pool.ranges(bytes, [&](int, int64_t lo, int64_t hi) { memcpy(to + place + lo, from + lo, size_t(hi - lo)); });
  });
  describe(kept->copy);
}

/// The copy to replace. The other copy stays complete.
KeptState &KeptMemory::older() const { return kept->arena.steps <= kept->copy.steps ? kept->arena : kept->copy; }

void KeptMemory::beginStep(Device &device) {
  if (!onDevice || !isTurn() || kept->arena.steps == steps || kept->copy.steps == steps)
    return;
  underWay = &older();
  underWay->steps = 0;
  device.copyAside(image.copiesTo(device.afterArena() + (underWay == &kept->copy ? image.bytes() : 0)));
}

void KeptMemory::endStep() {
  if (underWay)
    describe(*underWay);
  underWay = nullptr;
}
