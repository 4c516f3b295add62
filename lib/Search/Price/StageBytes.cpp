//===- StageBytes.cpp - Bytes of a pipeline's stages, from a small pipeline ------------------===//
// The memory of a stage is the sum of the bytes that its tasks hold at the same time. A pipeline with few stages and
// microbatches gives the bytes of each kind of task, and the order of the full pipeline determines which of them are
// live at the same time.
//===-----------------------------------------------------------------------------------------===//
#include "StageBytes.h"

#include <algorithm>

using namespace mlir;
using namespace pc;
using pipeline::Problem;
using pipeline::Task;

/// The number of chunks on a chunk's stage that come before it.
static int64_t placeOf(const Problem &problem, int64_t chunk) {
  return std::count(problem.stageOf.begin(), problem.stageOf.begin() + chunk, problem.stageOf[chunk]);
}

/// Reads both small pipelines, whose chunks have `a` and `b` layers.
StageBytes::StageBytes(const Problem &small, int64_t a, ArrayRef<TaskMemory> ofA, int64_t b, ArrayRef<TaskMemory> ofB)
    : a(a), b(b), stages(small.stages) {
  for (int stage = 0; stage < small.stages; ++stage) {
    read(small, stages[stage], ofA[stage], 0);
    read(small, stages[stage], ofB[stage], 1);
  }
}

/// Assigns the stretches of a planned program to tasks of the first, a middle and the last microbatch. Each value that
/// a task allocates is assigned to the point at which it is freed.
void StageBytes::read(const Problem &small, Stage &stage, const TaskMemory &memory, int program) const {
  stage.gaps = std::max(stage.gaps, static_cast<double>(memory.gaps));
  int64_t microbatches = small.microbatches, middle = microbatches / 2;
  auto last = static_cast<int>(memory.stretches.size()) - 1;
  // One microbatch represents all microbatches between the first and the last one.
  std::vector<Stretch *> stretches;
  for (int i = 0; i <= last; ++i) {
    const TaskMemory::Stretch &one = memory.stretches[i];
    Microbatch microbatch = which(one.microbatch, microbatches);
    Stretch *stretch = i == 0      ? &stage.before
                       : i == last ? &stage.after
                       : microbatch == Middle && one.microbatch != middle
                           ? nullptr
                           : &stage.tasks[{one.kind, one.chunk, microbatch}];
    stretches.push_back(stretch);
    if (stretch)
      stretch->own[program] = static_cast<double>(one.own);
  }
  // Bytes that a task allocates for all later tasks live until the last microbatch. Bytes for the next task live until
  // that task, which may be one of the last microbatch here, because there are few microbatches.
  auto isForAll = [&](int from, int to) {
    const TaskMemory::Stretch &taker = memory.stretches[from], &giver = memory.stretches[to];
    int64_t between = llvm::count_if(ArrayRef(memory.stretches).slice(from + 1, to - from - 1), [&](const auto &one) {
      return one.kind == giver.kind && one.chunk == giver.chunk && one.microbatch > taker.microbatch;
    });
    return between == microbatches - 2 - taker.microbatch && (between > 0 || taker.microbatch == 0);
  };
  for (const auto &[ends, bytes] : memory.kept) {
    auto [from, to] = ends;
    if (!stretches[from])
      continue;
    const TaskMemory::Stretch &taker = memory.stretches[from], &giver = memory.stretches[to];
    End end;
    if (to != last) {
      int64_t own = from == 0 ? 0 : taker.microbatch;
      bool isToLast = giver.microbatch == microbatches - 1 && (from == 0 || isForAll(from, to));
      end.how = giver.microbatch == own ? End::Own : isToLast ? End::Last : End::Later;
      if (end.how == End::Later)
        end.tasks = to - from;
      else
        std::tie(end.kind, end.chunk) = std::pair(giver.kind, placeOf(small, giver.chunk));
    }
    stretches[from]->kept[end][program] += static_cast<double>(bytes);
  }
}

double StageBytes::most(const Problem &whole, const std::vector<Task> &tasks, const Walk &walk,
                        llvm::function_ref<const Stretch *(const Task &)> stretchOf,
                        llvm::function_ref<double(const Bytes &, int)> bytes) const {
  SmallVector<int> chunks; // the chunks of the stage
  for (int chunk = 0; chunk < whole.chunks(); ++chunk)
    if (whole.stageOf[chunk] == whole.stageOf[tasks.front().chunk])
      chunks.push_back(chunk);
  std::vector<int> place(whole.tasks()); // the position of each task on the stage; 0 is before all tasks
  for (auto [i, task] : llvm::enumerate(tasks))
    place[whole.id(task)] = static_cast<int>(i) + 1;
  auto last = static_cast<int>(tasks.size()) + 1;
  std::vector<double> change(last + 2), own(last + 1);
  constexpr int all = -1;
  auto take = [&](int at, const Stretch &stretch, int chunk, int microbatch) {
    own[at] = bytes(stretch.own, chunk);
    for (const auto &[end, kept] : stretch.kept) {
      int to = last;
      if (end.how == End::Later) {
        to = std::min(last, at + static_cast<int>(end.tasks));
      } else if (end.how != End::Optimizer) {
        int of = end.how == End::Last ? whole.microbatches - 1 : microbatch;
        to = place[whole.id({end.kind, walk.ownChunks ? chunk : chunks[end.chunk], of})];
      }
      if (to <= at + 1)
        continue;
      change[at + 1] += bytes(kept, chunk); // in the stretches between the two
      change[to] -= bytes(kept, chunk);
    }
  };
  if (walk.before)
    take(0, *walk.before, all, 0);
  if (walk.after)
    take(last, *walk.after, all, 0);
  for (auto [i, task] : llvm::enumerate(tasks))
    if (const Stretch *stretch = stretchOf(task))
      take(static_cast<int>(i) + 1, *stretch, task.chunk, task.microbatch);
  int until = last;
  if (walk.untilLast) {
    auto isEnd = [&](const Task &task) {
      return task.kind == TaskKind::Backward && task.microbatch == whole.microbatches - 1;
    };
    until = static_cast<int>(llvm::find_if(tasks, isEnd) - tasks.begin()) + 1;
  }
  double kept = 0, most = 0;
  for (int at = 0; at <= until; ++at)
    most = std::max(most, (kept += change[at]) + own[at]);
  return most;
}

double StageBytes::arena(const Problem &whole, const std::vector<Task> &tasks, int like,
                         llvm::function_ref<int(int)> chunkLike, ArrayRef<int64_t> layers) const {
  const Stage &stage = stages[like];
  double mean = 0, count = 0;
  for (int chunk = 0; chunk < whole.chunks(); ++chunk)
    if (whole.stageOf[chunk] == whole.stageOf[tasks.front().chunk]) {
      mean += static_cast<double>(layers[chunk]);
      ++count;
    }
  auto stretchOf = [&](const Task &task) {
    auto it = stage.tasks.find({task.kind, chunkLike(task.chunk), which(task.microbatch, whole.microbatches)});
    return it == stage.tasks.end() ? nullptr : &it->second;
  };
  auto bytes = [&](const Bytes &bytes, int chunk) {
    double n = chunk < 0 ? mean / count : static_cast<double>(layers[chunk]);
    return bytes[0] + (n - static_cast<double>(a)) * ofLayer(bytes);
  };
  return most(whole, tasks, {.before = &stage.before, .after = &stage.after}, stretchOf, bytes) + stage.gaps;
}

double StageBytes::ofLayers(const Problem &whole, const std::vector<Task> &tasks, ArrayRef<int64_t> layers,
                            bool withOwn, double gradientShare, bool untilLast) const {
  std::array<std::array<Stretch, pipeline::numKinds>, 2> stretches; // for the first microbatch, and for the others
  for (const auto &[key, stretch] : stages[0].tasks) {
    auto [kind, chunk, microbatch] = key;
    if (chunk != 0 || microbatch == LastOne)
      continue;
    Stretch &one = stretches[microbatch == Middle][static_cast<size_t>(kind)] = stretch;
    if (!withOwn)
      one.own = {};
    // The values that a backward task keeps for other microbatches, or for the optimizer, are sums of gradients.
    bool isBackward = kind >= TaskKind::Backward;
    for (auto &[end, kept] : one.kept)
      if (end.how == End::Optimizer || (isBackward && end.how != End::Own))
        kept = {kept[0] * gradientShare, kept[1] * gradientShare};
  }
  auto stretchOf = [&](const Task &task) { return &stretches[task.microbatch > 0][static_cast<size_t>(task.kind)]; };
  auto bytes = [&](const Bytes &bytes, int chunk) {
    return std::max(ofLayer(bytes), 0.0) * static_cast<double>(layers[chunk]);
  };
  return most(whole, tasks, {.ownChunks = true, .untilLast = untilLast}, stretchOf, bytes);
}
