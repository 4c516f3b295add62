//===- TaskMemory.cpp - The bytes that a pipeline stage keeps between tasks ------------------===//
// Input: the planned step of a stage. A stretch of the program consists of the ops between two tasks. Result: the bytes
// that each stretch needs only inside it, and the bytes of buffers that are kept from one stretch to a later one. From
// these, the memory of another order of the same tasks can be computed without planning it.
//===-----------------------------------------------------------------------------===//
#include "pc/Cost/TaskMemory.h"
#include "MemoryUse.h"

using namespace mlir;
using namespace pc;

/// Stretches begin at the markers of tasks. Each buffer is assigned to the stretches in which its life begins and ends.
TaskMemory TaskMemory::of(Block &body, int64_t arenaBytes) {
  TaskMemory memory;
  memory.stretches.emplace_back();
  std::vector<int64_t> begins = {0}; // positions at which stretches begin
  MemoryProfile profile(body);
  const Liveness &liveness = profile.liveness();
  for (auto task : body.getOps<TaskOp>()) {
    Stretch &stretch = memory.stretches.emplace_back();
    stretch.kind = task.getKind();
    stretch.chunk = task.getChunk() ? static_cast<int64_t>(*task.getChunk()) : -1;
    stretch.microbatch = task.getMicrobatch() ? static_cast<int64_t>(*task.getMicrobatch()) : -1;
    begins.push_back(liveness.position(task));
  }
  begins.push_back(liveness.size());
  auto stretchOf = [&](int64_t position) {
    return static_cast<int>(std::upper_bound(begins.begin(), std::prev(begins.end()), position) - begins.begin()) - 1;
  };
  std::vector<int64_t> all(liveness.size() + 1), own(liveness.size() + 1); // bytes that are added at a position
  auto add = [](std::vector<int64_t> &bytes, int64_t first, int64_t end, int64_t count) {
    bytes[first] += count;
    bytes[end] -= count;
  };
  for (const PlacedBuffer &buffer : profile.buffers()) {
    // If a buffer is used in several separate spans of time, it is assumed to be kept between them. In the first and
    // the last stretch, it counts as `own` at positions outside of its life.
    int64_t end = std::min(buffer.life.last + 1, liveness.size());
    int first = stretchOf(buffer.life.first), last = stretchOf(end - 1);
    add(all, buffer.life.first, end, buffer.bytes);
    if (first == last) {
      add(own, buffer.life.first, end, buffer.bytes);
      continue;
    }
    add(own, buffer.life.first, begins[first + 1], buffer.bytes);
    add(own, begins[last], end, buffer.bytes);
    memory.kept[{first, last}] += buffer.bytes;
  }
  int64_t alive = 0, ofOwn = 0, most = 0;
  for (int64_t position = 0, stretch = 0; position < liveness.size(); ++position) {
    while (position >= begins[stretch + 1])
      ++stretch;
    most = std::max(most, alive += all[position]);
    ofOwn += own[position];
    memory.stretches[stretch].own = std::max(memory.stretches[stretch].own, ofOwn);
  }
  memory.gaps = arenaBytes - most;
  return memory;
}
