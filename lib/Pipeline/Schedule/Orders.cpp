//===- Orders.cpp - The named pipeline schedules -------------------------------------------===//
// naive and GPipe (Huang et al., 2019), 1F1B (Narayanan et al., 2019), interleaved (Narayanan et al., 2021), zero
// bubble H1, H2 (Qi et al., 2023) and V (Qi et al., 2024). All but naive and GPipe are one merge of a sequence of
// forwards and one of backwards. A new schedule is a row of `namedSchedules` and its function: the flag and its help,
// the documentation, `auto`, the report and the tests read the rows.
//===-----------------------------------------------------------------------------===//
#include "pc/Pipeline/Schedule.h"

#include <algorithm>
#include <array>

using namespace pc::pipeline;

namespace {

/// A chunk and a microbatch.
using Item = std::pair<int, int>;
using Tasks = std::vector<Task>;

std::vector<int> chunksOf(const Problem &p, int stage) {
  std::vector<int> chunks;
  for (int c = 0; c < p.chunks(); ++c)
    if (p.stageOf[c] == stage)
      chunks.push_back(c);
  return chunks;
}

/// Inserts the recomputation right before its backward task, if a chunk recomputes.
Tasks withRecompute(const Problem &p, const Tasks &tasks) {
  Tasks out;
  for (const Task &task : tasks) {
    if (task.kind == TaskKind::Backward && p.has(TaskKind::Recompute, task.chunk))
      out.push_back({TaskKind::Recompute, task.chunk, task.microbatch});
    out.push_back(task);
  }
  return out;
}

void backward(const Problem &p, Tasks &out, int chunk, int microbatch) {
  out.push_back({TaskKind::Backward, chunk, microbatch});
  if (p.split)
    out.push_back({TaskKind::Weight, chunk, microbatch});
}

/// Returns `warm` forwards, and then forwards and backwards alternately. A weight gradient follows a backward if more
/// than `lag` are pending; the others come at the end.
Tasks merge(const Problem &p, const std::vector<Item> &forwards, const std::vector<Item> &backwards, int warm,
            int lag) {
  Tasks out;
  size_t f = 0, w = 0;
  auto forward = [&] {
    if (f < forwards.size()) {
      out.push_back({TaskKind::Forward, forwards[f].first, forwards[f].second});
      ++f;
    }
  };
  auto weight = [&] {
    out.push_back({TaskKind::Weight, backwards[w].first, backwards[w].second});
    ++w;
  };
  for (int i = 0; i < warm; ++i)
    forward();
  for (size_t b = 0; b < backwards.size(); ++b) {
    forward();
    out.push_back({TaskKind::Backward, backwards[b].first, backwards[b].second});
    if (p.split && b + 1 - w > static_cast<size_t>(lag))
      weight();
  }
  while (p.split && w < backwards.size())
    weight();
  return out;
}

/// All microbatches of one chunk.
std::vector<Item> allOf(const Problem &p, int chunk) {
  std::vector<Item> items;
  for (int i = 0; i < p.microbatches; ++i)
    items.push_back({chunk, i});
  return items;
}

/// Passes one microbatch after another through all chunks and back.
Tasks naive(const Problem &p, int d) {
  Tasks out;
  std::vector<int> chunks = chunksOf(p, d);
  for (int i = 0; i < p.microbatches; ++i) {
    for (int c : chunks)
      out.push_back({TaskKind::Forward, c, i});
    for (auto c = chunks.rbegin(); c != chunks.rend(); ++c)
      backward(p, out, *c, i);
  }
  return out;
}

/// Backwards are also in ascending order. Time and memory are the same as in descending order, and gradients are summed
/// in the same order as in other schedules.
Tasks gpipe(const Problem &p, int d) {
  Tasks out;
  std::vector<int> chunks = chunksOf(p, d);
  for (int c : chunks)
    for (int i = 0; i < p.microbatches; ++i)
      out.push_back({TaskKind::Forward, c, i});
  for (auto c = chunks.rbegin(); c != chunks.rend(); ++c)
    for (int i = 0; i < p.microbatches; ++i)
      backward(p, out, *c, i);
  return out;
}

/// Microbatches pass group by group. Within a group, forwards go from the first chunk to the last and backwards from
/// the last to the first; each chunk works on all microbatches of the group.
Tasks interleaved(const Problem &p, int d) {
  int perStage = p.chunks() / p.stages, first = 0, largest = 0;
  std::vector<Item> forwards, backwards;
  for (int size : interleavingGroups(p.stages, p.microbatches)) {
    for (int v = 0; v < perStage; ++v)
      for (int i = first; i < first + size; ++i) {
        forwards.push_back({v * p.stages + d, i});
        backwards.push_back({(perStage - 1 - v) * p.stages + d, i});
      }
    first += size;
    largest = std::max(largest, size);
  }
  return merge(p, forwards, backwards, 2 * (p.stages - 1 - d) + (perStage - 1) * largest, 0);
}

/// Each stage has two chunks, front (0) and back (1). The order is written for at least 2p - 1 microbatches. If there
/// are only m, the others are left out, which keeps the order legal.
Tasks zeroBubbleV(const Problem &p, int d) {
  int n = std::max(p.microbatches, 2 * p.stages - 1), chunk[2] = {d, 2 * p.stages - 1 - d};
  std::array<std::array<int, 2>, numKinds> count = {};
  Tasks out;
  auto put = [&](TaskKind kind, int side) {
    int i = count[static_cast<int>(kind)][side]++;
    if (i < p.microbatches)
      out.push_back({kind, chunk[side], i});
  };
  auto all = [&](int side) {
    put(TaskKind::Forward, side);
    put(TaskKind::Backward, side);
    put(TaskKind::Weight, side);
  };
  auto &forwards = count[static_cast<int>(TaskKind::Forward)], &weights = count[static_cast<int>(TaskKind::Weight)];
  // Warm-up: forwards go down the V, come up again, and the backwards of the upper half follow.
  for (int i = 0; i < 2 * (p.stages - d) - 1; ++i)
    put(TaskKind::Forward, 0);
  for (int i = 0; i < d; ++i) {
    put(TaskKind::Forward, 1);
    put(TaskKind::Forward, 0);
  }
  for (int i = 0; i < p.stages - d; ++i)
    all(1);
  // Steady state: one task of each kind on both sides.
  while (forwards[1] < n) {
    if (forwards[0] < n)
      put(TaskKind::Forward, 0);
    put(TaskKind::Backward, 0);
    put(TaskKind::Weight, 0);
    all(1);
  }
  for (int i = 0; i < d; ++i) {
    put(TaskKind::Backward, 0);
    put(TaskKind::Backward, 1);
  }
  for (int i = 0; i < p.stages - d; ++i) {
    put(TaskKind::Backward, 0);
    put(TaskKind::Weight, 0);
  }
  // The remaining weight gradients fill the end.
  for (int side : {1, 0})
    while (weights[side] < n)
      put(TaskKind::Weight, side);
  return out;
}

template <int perStage, int lagPerStage> Tasks oneChunk(const Problem &p, int d) {
  return merge(p, allOf(p, d), allOf(p, d), perStage * (p.stages - 1 - d), lagPerStage * d);
}

using Stages = UniformStages;
bool always(const Stages &) { return true; }
bool manyMicrobatches(const Stages &s) { return s.m >= s.p; }
bool twiceAsMany(const Stages &s) { return s.m >= 2 * s.p - 1; }
double fillAndDrain(const Stages &s) { return (s.p - 1) / (s.v * s.m); }

constexpr const char *gpipePaper = "GPipe (Huang et al. 2019); Narayanan et al. 2021, section 2.2";
constexpr const char *megatronPaper = "Narayanan et al. 2021, section 2.2";

/// The reason why the problem does not fit the schedule; empty if it fits.
std::string mismatch(const Problem &p, const NamedSchedule &schedule) {
  std::string name(schedule.name);
  bool whole = p.chunks() % p.stages == 0,
       roundRobinMap = whole && p.stageOf == roundRobin(p.stages, p.chunks() / p.stages);
  if (schedule.chunkMap == ChunkMap::OneChunk && p.stageOf != roundRobin(p.stages, 1))
    return "schedule '" + name + "' needs one chunk per stage; use interleaved or zb-v for more";
  if (schedule.chunkMap == ChunkMap::RoundRobin && !roundRobinMap)
    return "schedule '" + name + "' needs chunk c on stage c mod " + std::to_string(p.stages);
  if (schedule.chunkMap == ChunkMap::V && p.stageOf != vShape(p.stages))
    return "schedule '" + name + "' needs two chunks per stage, folded as a V";
  if (schedule.split && !p.split)
    return "schedule '" + name + "' needs tasks that compute gradients of weights separately from gradients of inputs";
  return "";
}

} // namespace

/// Divides the microbatches into groups of nearly equal size, about as large as the number of stages.
std::vector<int> pc::pipeline::interleavingGroups(int stages, int microbatches) {
  int n = std::max(1, microbatches / stages);
  std::vector<int> sizes;
  for (int j = 0; j < n; ++j)
    sizes.push_back(microbatches / n + (j < microbatches % n));
  return sizes;
}

/// The table of schedules. Each row has its sources: papers for published bounds, or "own" for counts that tests check.
const std::vector<NamedSchedule> &pc::pipeline::namedSchedules() {
  static const std::vector<NamedSchedule> schedules = {
      {.name = "naive",
       .chunkMap = ChunkMap::Any,
       .tasks = naive,
       .inFlight = [](int, int) { return 1; },
       .memory = {"1", "one microbatch at a time"},
       .idle = {{"p - 1", always, [](const Stages &s) { return s.p - 1; }, "one stage works at a time"}}},
      {.name = "gpipe",
       .chunkMap = ChunkMap::RoundRobin,
       .tasks = gpipe,
       .memory = {"m", gpipePaper},
       .idle = {{"(p - 1) / m", always, fillAndDrain, gpipePaper}}},
      {.name = "1f1b",
       .tasks = oneChunk<1, 0>,
       .inFlight = [](int stages, int stage) { return stages - stage; },
       .memory = {"min(m, p - d), at most p", "Narayanan et al. 2021, section 2.2; Zero Bubble, table 2"},
       .idle = {{"(p - 1) / m", always, fillAndDrain, "PipeDream-flush (Narayanan et al. 2021, section 2.2)"}}},
      // Two more microbatches in flight per stage, which hides hops of up to half of F + B + W.
      {.name = "1f1b-eager",
       .tasks = oneChunk<2, 0>,
       .inFlight = [](int stages, int stage) { return 2 * (stages - stage) - 1; },
       .memory = {"min(m, 2(p - d) - 1)", "own count"},
       .idle = {{"(p - 1) / m", always, fillAndDrain, "as 1f1b"}}},
      {.name = "interleaved",
       .chunkMap = ChunkMap::RoundRobin,
       .chunksPerStage = 2,
       .anyChunks = true,
       .tasks = interleaved,
       .memory = {"at most p + (p - 1) / v, v = 2",
                  "Narayanan et al. 2021, section 2.2; Megatron-LM's estimate of memory"},
       .idle = {{"(p - 1) / (v m)", manyMicrobatches, fillAndDrain, megatronPaper, "m >= p"},
                {"(p - 1 + (v - 1) (p - m)) / (v m)", always,
                 [](const Stages &s) { return (s.p - 1 + (s.v - 1) * (s.p - s.m)) / (s.v * s.m); },
                 "own, checked by `test/Pipeline`", "m < p"}}},
      {.name = "zb-h1",
       .split = true,
       .tasks = oneChunk<1, 1>,
       .inFlight = [](int stages, int) { return stages; },
       .memory = {"min(m, p)", "Zero Bubble, table 2"},
       .idle = {{"(p - 1) (B + max(0, F - W)) / (m (F + B + W))", manyMicrobatches,
                 [](const Stages &s) { return (s.p - 1) * (s.b + std::max(0.0, s.f - s.w)) / s.work(); },
                 "Zero Bubble (Qi et al., arXiv 2401.10241), table 2: (p - 1)(F + B - W), for F >= W; the rest is own",
                 "m >= p"}}},
      {.name = "zb-h2",
       .split = true,
       .tasks = oneChunk<2, 2>,
       .inFlight = [](int stages, int) { return 2 * stages - 1; },
       .memory = {"at most 2p - 1", "Zero Bubble, table 2"},
       .idle = {{"(p - 1) max(0, F + B - 2 W, B - F) / (m (F + B + W))", twiceAsMany,
                 [](const Stages &s) { return (s.p - 1) * std::max({0.0, s.f + s.b - 2 * s.w, s.b - s.f}) / s.work(); },
                 "Zero Bubble, table 2: (p - 1)(F + B - 2W), where that is the largest; the rest is own",
                 "m >= 2p - 1"}}},
      {.name = "zb-v",
       .chunkMap = ChunkMap::V,
       .chunksPerStage = 2,
       .split = true,
       .tasks = zeroBubbleV,
       .memory = {"p", "Zero Bubble (arXiv 2401.10241) and its authors' repository"},
       .idle = {{"0 where F = B = W", twiceAsMany, [](const Stages &) { return 0.0; },
                 "Zero Bubble's version with ZB-V, and its authors' repository", "m >= 2p - 1",
                 /*equalTimes=*/true}}},
  };
  return schedules;
}

const NamedSchedule *pc::pipeline::findSchedule(std::string_view name) {
  for (const NamedSchedule &schedule : namedSchedules())
    if (schedule.name == name)
      return &schedule;
  return nullptr;
}

std::string pc::pipeline::scheduleNames() {
  std::string names;
  for (const NamedSchedule &schedule : namedSchedules())
    names += std::string(schedule.name) + (schedule.anyChunks ? "[:chunks], " : ", ");
  return names + "auto, or a file of tasks";
}

std::vector<int> NamedSchedule::stageOfChunks(int stages, int chunks) const {
  return chunkMap == ChunkMap::V ? vShape(stages) : roundRobin(stages, chunks ? chunks : chunksPerStage);
}

const ClosedForm *NamedSchedule::closedForm(const UniformStages &stages) const {
  for (const ClosedForm &form : idle)
    if (form.applies(stages))
      return &form;
  return nullptr;
}

/// Named schedules contain no tasks of recomputation, so these are added.
std::optional<Order> NamedSchedule::order(const Problem &problem, std::string &error) const {
  if (error = mismatch(problem, *this); !error.empty())
    return std::nullopt;
  Order order;
  for (int d = 0; d < problem.stages; ++d)
    order.push_back(withRecompute(problem, tasks(problem, d)));
  return order;
}
