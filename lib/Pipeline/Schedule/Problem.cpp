//===- Problem.cpp - Scheduling problems, and the cost of orders ---------------------------===//
// Implements problems and orders of Schedule.h: the tasks, their inputs, seconds and bytes, the timeline of an order,
// and its memory. It does not depend on IR. simulate() is linear in the number of tasks.
//===-----------------------------------------------------------------------------===//
#include "pc/Pipeline/Schedule.h"

#include <algorithm>
#include <numeric>
#include <utility>

using namespace pc::pipeline;

static double at(const std::vector<double> &values, int chunk, double otherwise = 0) {
  return values.empty() ? otherwise : values[chunk];
}

char pc::pipeline::letterOf(TaskKind kind) { return "FRBW"[static_cast<int>(kind)]; }

std::string pc::pipeline::text(const Task &task) {
  return letterOf(task.kind) + std::to_string(task.chunk) + "." + std::to_string(task.microbatch);
}

std::vector<int> pc::pipeline::roundRobin(int stages, int chunksPerStage) {
  std::vector<int> stageOf;
  for (int c = 0; c < stages * chunksPerStage; ++c)
    stageOf.push_back(c % stages);
  return stageOf;
}

/// The chunks pass through the stages in order, and then back.
std::vector<int> pc::pipeline::vShape(int stages) {
  std::vector<int> stageOf;
  for (int d = 0; d < stages; ++d)
    stageOf.push_back(d);
  for (int d = stages; d-- > 0;)
    stageOf.push_back(d);
  return stageOf;
}

/// Divides a stage's seconds equally among its chunks.
Problem pc::pipeline::uniform(int microbatches, std::vector<int> stageOf, double forward, double backward,
                              double weight, bool split, double hop) {
  Problem p;
  p.stages = *std::max_element(stageOf.begin(), stageOf.end()) + 1;
  p.microbatches = microbatches;
  size_t n = stageOf.size();
  double share = static_cast<double>(p.stages) / static_cast<double>(n);
  p.stageOf = std::move(stageOf);
  p.forward.assign(n, forward * share);
  p.backward.assign(n, backward * share);
  p.weight.assign(n, weight * share);
  p.split = split;
  p.hop.assign(n, hop);
  return p;
}

bool Problem::has(TaskKind kind, int chunk) const {
  if (!training)
    return kind == TaskKind::Forward;
  return kind == TaskKind::Recompute ? at(recompute, chunk) > 0 : kind != TaskKind::Weight || split;
}

double Problem::seconds(const Task &task) const {
  double longer = 0;
  if (task.microbatch == 0)
    longer += at(longerFirst, ofKind(task.kind, task.chunk));
  if (task.microbatch == microbatches - 1)
    longer += at(longerLast, ofKind(task.kind, task.chunk));
  switch (task.kind) {
  case TaskKind::Forward:
    return longer + forward[task.chunk];
  case TaskKind::Recompute:
    return longer + at(recompute, task.chunk);
  case TaskKind::Backward:
    return longer + backward[task.chunk] + (split ? 0 : at(weight, task.chunk));
  case TaskKind::Weight:
    return longer + at(weight, task.chunk);
  case TaskKind::Optimizer: // no task of a schedule
    break;
  }
  return 0;
}

double Problem::takes(const Task &task) const {
  if (task.kind == TaskKind::Forward)
    return at(held, task.chunk, 1);
  return task.kind == TaskKind::Recompute ? at(heldByRecompute, task.chunk) : 0;
}

/// The bytes of a chunk that a microbatch holds between its backward tasks.
static double heldOf(const Problem &p, int chunk) {
  return at(p.held, chunk, 1) + (p.has(TaskKind::Recompute, chunk) ? at(p.heldByRecompute, chunk) : 0);
}

/// B frees all bytes that its microbatch holds for the chunk, or a part of them, and W frees the rest.
double Problem::frees(const Task &task) const {
  if (task.kind == TaskKind::Forward || task.kind == TaskKind::Recompute)
    return 0;
  double early = split ? at(releasedByBackward, task.chunk) : heldOf(*this, task.chunk);
  return task.kind == TaskKind::Backward ? early : heldOf(*this, task.chunk) - early;
}

double Problem::floor(int of) const {
  double sum = 0;
  for (int c = 0; c < chunks(); ++c)
    if (stageOf[c] == of)
      sum += heldOf(*this, c);
  return sum;
}

double Problem::ideal() const {
  std::vector<double> busy(stages);
  for (const Task &task : all())
    busy[stageOf[task.chunk]] += seconds(task);
  return *std::max_element(busy.begin(), busy.end());
}

/// The inputs of each kind of task: F needs the previous chunk's F. R needs its own F. B needs R (or F) and the next
/// chunk's B. W needs its own B.
Problem::Inputs Problem::inputs(const Task &task) const {
  Inputs needed;
  auto delay = [&](const std::vector<double> &hop, int from) {
    return stageOf[from] == stageOf[from + 1] ? 0 : at(hop, from);
  };
  auto [kind, c, i] = task;
  switch (kind) {
  case TaskKind::Forward:
    if (c)
      needed.add({{TaskKind::Forward, c - 1, i}, delay(hop, c - 1)});
    break;
  case TaskKind::Recompute:
    needed.add({{TaskKind::Forward, c, i}, 0});
    break;
  case TaskKind::Weight:
    needed.add({{TaskKind::Backward, c, i}, 0});
    break;
  case TaskKind::Backward:
    needed.add({{has(TaskKind::Recompute, c) ? TaskKind::Recompute : TaskKind::Forward, c, i}, 0});
    if (c + 1 < chunks() && (noGradientFrom.empty() || !noGradientFrom[c]))
      needed.add({{TaskKind::Backward, c + 1, i}, delay(hopBack.empty() ? hop : hopBack, c)});
    break;
  case TaskKind::Optimizer: // no task of a schedule
    break;
  }
  return needed;
}

std::vector<Task> Problem::all() const {
  std::vector<Task> tasks;
  for (int c = 0; c < chunks(); ++c)
    for (TaskKind kind : taskKinds)
      for (int i = 0; i < microbatches && has(kind, c); ++i)
        tasks.push_back({kind, c, i});
  return tasks;
}

/// Each stage runs its tasks in order. A stage whose next task lacks an input is added to the list of that input, and
/// continues when the input's task has run. If stages remain in lists at the end, the order stalls.
std::optional<Timeline> pc::pipeline::simulate(const Problem &problem, const Order &order) {
  Timeline time{std::vector<double>(problem.tasks()), std::vector<double>(problem.tasks(), -1), {}};
  std::vector<double> clock(order.size());
  std::vector<size_t> next(order.size());
  // For each task, a linked list of the stages that wait for it (each stage waits for one task), and the stages that
  // can continue.
  std::vector<int> firstWaiting(problem.tasks(), -1), nextWaiting(order.size(), -1), runnable(order.size());
  std::iota(runnable.begin(), runnable.end(), 0);
  for (size_t turn = 0; turn < runnable.size(); ++turn) {
    int d = runnable[turn];
    for (; next[d] < order[d].size(); ++next[d]) {
      const Task &task = order[d][next[d]];
      double start = clock[d];
      int missing = -1;
      for (const auto &[needed, delay] : problem.inputs(task)) {
        int input = problem.id(needed);
        if (time.end[input] < 0) {
          missing = input;
          break;
        }
        start = std::max(start, time.end[input] + delay);
      }
      // The stage is added to the list of the missing task, and becomes runnable when that task ends.
      if (missing >= 0) {
        int *last = &firstWaiting[missing];
        while (*last >= 0)
          last = &nextWaiting[*last];
        *last = d;
        break;
      }
      int id = problem.id(task);
      time.sequence.push_back(task);
      time.start[id] = start;
      time.end[id] = clock[d] = start + problem.seconds(task);
      for (int waiting = std::exchange(firstWaiting[id], -1); waiting >= 0;
           waiting = std::exchange(nextWaiting[waiting], -1))
        runnable.push_back(waiting);
    }
  }
  for (size_t d = 0; d < order.size(); ++d)
    if (next[d] < order[d].size())
      return std::nullopt;
  return time;
}

/// A task allocates memory at its start, so the peak is before the task frees memory.
std::vector<double> pc::pipeline::peaks(const Problem &problem, const Order &order) {
  std::vector<double> most;
  for (const auto &tasks : order) {
    double now = 0, top = 0;
    for (const Task &task : tasks) {
      top = std::max(top, now += problem.takes(task));
      now -= problem.frees(task);
    }
    most.push_back(top);
  }
  return most;
}

/// Allows for rounding of sums of many bytes.
bool pc::pipeline::fits(const Problem &problem, const Order &order) {
  if (problem.limit.empty())
    return true;
  std::vector<double> most = peaks(problem, order);
  for (size_t d = 0; d < most.size(); ++d)
    if (most[d] > problem.limit[d] * (1 + 1e-12) + 1e-9)
      return false;
  return true;
}

/// The optimizer's time is part of the cost of each stage, and is added once to the span.
std::optional<Measure> pc::pipeline::measure(const Problem &problem, const Order &order) {
  std::optional<Timeline> time = simulate(problem, order);
  if (!time)
    return std::nullopt;
  Measure result;
  for (const auto &tasks : order) {
    if (tasks.empty())
      continue;
    double first = time->start[problem.id(tasks.front())], last = time->end[problem.id(tasks.back())];
    result.cost = std::max(result.cost, last - first + problem.optimizer);
    result.span = std::max(result.span, last + problem.optimizer);
  }
  result.ideal = problem.ideal();
  result.memory = peaks(problem, order);
  return result;
}
