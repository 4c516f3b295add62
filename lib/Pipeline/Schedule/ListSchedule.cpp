//===- ListSchedule.cpp - Greedy orders under a memory limit -------------------------------===//
// List scheduling: the stage whose next task can start earliest runs this task. A stage's choice is cached and
// recomputed only after an event that can change it. The banker's test keeps the memory limit (E. W. Dijkstra, 1965): a
// forward task starts only if all live microbatches could still finish, oldest first.
//===-----------------------------------------------------------------------------===//
#include "ListSchedule.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

using namespace pc::pipeline;

namespace {

constexpr double slack = 1e-9;

/// State: the clock, memory and live microbatches of each stage, and the end of each task that has run. run() may be
/// called once. It returns std::nullopt if no stage can begin a task, which happens only with a fixed order or too
/// little memory.
class Greedy {
public:
  /// Priorities get their noise once, so that a task keeps its priority during the run.
  Greedy(const Problem &problem, const ListRule &rule)
      : p(problem), rule(rule), end(p.tasks(), -1), next(numKinds, std::vector<int>(p.chunks())), stages(p.stages),
        order(p.stages), jitter(rule.noise > 0 ? p.tasks() : 0) {
    for (double &value : jitter)
      value = std::uniform_real_distribution<double>(0, rule.noise)(*rule.random);
    for (int d = 0; d < p.stages; ++d)
      stages[d].floor = p.floor(d);
    for (int c = 0; c < p.chunks(); ++c)
      stages[p.stageOf[c]].chunks.push_back(c);
    if (rule.fixed)
      for (int d = 0; d < p.stages; ++d)
        std::copy_if((*rule.fixed)[d].begin(), (*rule.fixed)[d].end(), std::back_inserter(stages[d].fixed),
                     [](const Task &task) { return task.kind != TaskKind::Weight; });
  }

  /// Schedules one task at a time, on the stage whose choice can start first. Returns std::nullopt if no stage can
  /// begin a task.
  std::optional<Order> run() {
    for (size_t left = p.all().size(); left--;) {
      int best = -1;
      for (int d = 0; d < p.stages; ++d) {
        Stage &stage = stages[d];
        if (!stage.known) {
          stage.choice = choose(d);
          stage.known = true;
        }
        if (stage.choice && (best < 0 || stage.choice->first < stages[best].choice->first - slack))
          best = d;
      }
      if (best < 0)
        return std::nullopt;
      take(best);
    }
    return order;
  }

private:
  /// The memory that a live microbatch holds on a stage, and the memory that it still needs there.
  struct Live {
    double held = 0, needed = 0;
  };
  using Choice = std::pair<double, Task>; ///< its start, and the task
  /// The state of a stage: its clock, the memory in use, and its next choice, which is valid if `known`.
  struct Stage {
    double clock = 0, used = 0, floor = 0;
    std::vector<int> chunks;
    std::map<int, Live> live; ///< by microbatch
    TaskKind last = TaskKind::Backward;
    std::vector<Task> fixed;
    size_t atFixed = 0;
    bool known = false;
    std::optional<Choice> choice;
  };

  int &counter(TaskKind kind, int chunk) { return next[static_cast<int>(kind)][chunk]; }

  /// The time at which the inputs of a task have arrived, if their tasks have run.
  std::optional<double> ready(const Task &task) const {
    double when = 0;
    for (const auto &[needed, delay] : p.inputs(task)) {
      double done = end[p.id(needed)];
      if (done < 0)
        return std::nullopt;
      when = std::max(when, done + delay);
    }
    return when;
  }

  /// Returns true if stage `d` may begin `task` now: within the rule's cap, and with enough memory to finish all
  /// microbatches that it has begun.
  bool fits(int d, const Task &task) const {
    if (task.kind != TaskKind::Forward && task.kind != TaskKind::Recompute)
      return true;
    const Stage &stage = stages[d];
    if (!rule.inFlight.empty() && task.kind == TaskKind::Forward && !stage.live.count(task.microbatch) &&
        static_cast<int>(stage.live.size()) >= rule.inFlight[d])
      return false;
    if (p.limit.empty())
      return true;
    double taken = p.takes(task), room = p.limit[d] - stage.used - taken;
    if (room < -slack)
      return false;
    // Oldest first: each live microbatch must be able to finish with the free memory and the memory that older ones
    // release.
    std::map<int, Live> live = stage.live;
    Live &own = live.try_emplace(task.microbatch, Live{0, stage.floor}).first->second;
    own.held += taken;
    own.needed -= taken;
    for (const auto &[microbatch, of] : live) {
      if (of.needed > room + slack)
        return false;
      room += of.held;
    }
    return true;
  }

  /// The next task of each kind and chunk whose predecessor has run; with a fixed order, only the next one.
  std::vector<Task> candidates(const Stage &stage) {
    if (rule.fixed)
      return stage.atFixed < stage.fixed.size() ? std::vector<Task>{stage.fixed[stage.atFixed]} : std::vector<Task>{};
    std::vector<Task> tasks;
    for (int c : stage.chunks)
      for (TaskKind kind : {TaskKind::Forward, TaskKind::Recompute, TaskKind::Backward})
        if (p.has(kind, c) && counter(kind, c) < p.microbatches)
          tasks.push_back({kind, c, counter(kind, c)});
    return tasks;
  }

  /// The task that stage `d` would begin next, and its start: the first task that is ready, with ties broken by the
  /// rule.
  std::optional<Choice> choose(int d) {
    const Stage &stage = stages[d];
    using Key = std::tuple<double, double, int, int>;
    std::optional<std::pair<Key, Task>> best;
    bool blocked = false;
    for (const Task &task : candidates(stage)) {
      std::optional<double> when = ready(task);
      if (!when)
        continue;
      if (!fits(d, task)) {
        blocked = true;
        continue;
      }
      bool forward = task.kind == TaskKind::Forward;
      bool later = rule.prefer == ListRule::Backward  ? forward
                   : rule.prefer == ListRule::Forward ? !forward
                                                      : forward == (stage.last == TaskKind::Forward);
      int chunk = rule.deepestFirst ? -task.chunk : task.chunk;
      Key key{std::max(*when, stage.clock), later + (jitter.empty() ? 0 : jitter[p.id(task)]),
              forward ? chunk : task.microbatch, forward ? task.microbatch : task.chunk};
      if (!best || key < best->first)
        best = {key, task};
    }
    if (p.split) {
      // The oldest pending weight gradient of the deepest chunk.
      int chunk = -1;
      for (int c : stage.chunks)
        if (counter(TaskKind::Weight, c) < counter(TaskKind::Backward, c) &&
            (chunk < 0 || counter(TaskKind::Weight, c) <= counter(TaskKind::Weight, chunk)))
          chunk = c;
      // Weight gradients fill gaps, and free memory if a forward task is blocked for lack of memory.
      if (chunk >= 0 &&
          (blocked || !best ||
           std::get<0>(best->first) - stage.clock >= rule.gap * p.seconds({TaskKind::Weight, chunk, 0}) - slack))
        return Choice{stage.clock, {TaskKind::Weight, chunk, counter(TaskKind::Weight, chunk)}};
    }
    return best ? std::optional(Choice{std::get<0>(best->first), best->second}) : std::nullopt;
  }

  /// Begins the chosen task of stage `d`. Only the stages that this can affect choose again.
  void take(int d) {
    Stage &stage = stages[d];
    auto [start, task] = *stage.choice;
    stage.clock = end[p.id(task)] = start + p.seconds(task);
    order[d].push_back(task);
    counter(task.kind, task.chunk) = task.microbatch + 1;
    stage.atFixed += task.kind != TaskKind::Weight;
    if (task.kind == TaskKind::Forward || task.kind == TaskKind::Backward)
      stage.last = task.kind;
    double taken = p.takes(task), freed = p.frees(task);
    stage.used += taken - freed;
    Live &own = stage.live.try_emplace(task.microbatch, Live{0, stage.floor}).first->second;
    own.held += taken - freed;
    own.needed -= taken;
    if (own.held <= slack && own.needed <= slack)
      stage.live.erase(task.microbatch);
    stage.known = false;
    // Only the stages of neighbouring chunks may have got an input.
    if (task.kind == TaskKind::Forward && task.chunk + 1 < p.chunks())
      stages[p.stageOf[task.chunk + 1]].known = false;
    if (task.kind == TaskKind::Backward && task.chunk > 0)
      stages[p.stageOf[task.chunk - 1]].known = false;
  }

  const Problem &p;
  const ListRule &rule;
  std::vector<double> end;            ///< the end of each task, by its id; -1: not run yet
  std::vector<std::vector<int>> next; ///< for each kind and chunk, the next microbatch
  std::vector<Stage> stages;
  Order order;
  std::vector<double> jitter;
};

} // namespace

std::optional<Order> pc::pipeline::listSchedule(const Problem &problem, const ListRule &rule) {
  return Greedy(problem, rule).run();
}
