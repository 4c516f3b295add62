//===- Schedule.h - Pipeline schedules as values ------------------------------------------===//
// A problem (stages, chunks of the model, microbatches, times, memory), orders that solve it, and what an order costs.
// Free of ops. A *stage* is a whole group of ranks at one place of the pipeline axis; a *chunk* a contiguous piece of
// the model.
//===-----------------------------------------------------------------------------===//
#ifndef PC_PIPELINE_SCHEDULE_H
#define PC_PIPELINE_SCHEDULE_H

#include "pc/IR/Enums.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pc::pipeline {

using pc::TaskKind;

/// Kinds of tasks: forward; recomputation of what the forward pass did not keep; gradient of the input; gradient of the
/// weights. The optimizer is no task: it follows all of them.
inline constexpr std::array taskKinds = {TaskKind::Forward, TaskKind::Recompute, TaskKind::Backward, TaskKind::Weight};
constexpr int numKinds = taskKinds.size();
/// 'F', 'R', 'B' or 'W'.
char letterOf(TaskKind kind);

/// One kind of work of one chunk for one microbatch.
struct Task {
  TaskKind kind = TaskKind::Forward;
  int chunk = 0, microbatch = 0;
  friend bool operator==(const Task &, const Task &) = default;
};
/// "F3.0": forward of chunk 3, microbatch 0.
std::string text(const Task &task);

/// Per stage, its tasks in the order in which it runs them. In every order that is made here each (kind, chunk) takes
/// its microbatches in ascending order, so that gradients are summed in one order under every schedule.
using Order = std::vector<std::vector<Task>>;

/// What is to be scheduled. Vectors are per chunk unless they say otherwise; an empty one is all zeros (`held`: all
/// ones).
struct Problem {
  int stages = 1, microbatches = 1;
  std::vector<int> stageOf;                      ///< of every chunk, chunks in model order
  std::vector<double> forward, backward, weight; ///< seconds; `backward` without the gradient of the weights
  bool training = true;                          ///< false: there are tasks F only
  bool split = false;                            ///< false: one task B takes backward + weight, and there is no W
  std::vector<double> recompute;                 ///< seconds; 0: the chunk keeps what it needs
  std::vector<double> hop;                       ///< seconds from chunk c to c + 1 where their stages differ
  std::vector<double> hopBack;                   ///< and of gradients from c + 1 to c; empty: as many
  std::vector<double> held;                      ///< memory taken when F starts
  std::vector<double> heldByRecompute;           ///< memory added when R starts
  std::vector<double> releasedByBackward; ///< with `split`: memory that the end of B gives back; W gives back the rest
  std::vector<double> limit;              ///< per stage; empty: none
  double optimizer = 0;                   ///< seconds after a stage's last task
  std::vector<bool> noGradientFrom;       ///< by chunk: the next one sends it no gradient; empty: each does
  /// Seconds by which tasks of the first and of the last microbatch are longer, by kind and chunk (`ofKind`): they wait
  /// for parameters that are gathered once per step, or for sums of gradients. Empty: none.
  std::vector<double> longerFirst, longerLast;

  /// The number of chunks of all stages.
  int chunks() const { return static_cast<int>(stageOf.size()); }
  /// Whether the chunk has tasks of this kind: R if something is recomputed, W if the backward pass is split.
  bool has(TaskKind kind, int chunk) const;
  /// Seconds of a task, with what the first and the last microbatch wait for.
  double seconds(const Task &task) const;
  /// Memory that a task takes at its start and gives back at its end.
  double takes(const Task &task) const;
  double frees(const Task &task) const;
  /// What one microbatch of all its chunks takes on a stage: less cannot be scheduled.
  double floor(int stage) const;
  /// Seconds of work of the busiest stage.
  double ideal() const;

  /// A task that must be done before another one begins.
  struct Input {
    Task task;
    double delay; ///< seconds until its result is there
  };
  /// At most two.
  class Inputs {
  public:
    void add(const Input &input) { list[count++] = input; }
    const Input *begin() const { return list.data(); }
    const Input *end() const { return list.data() + count; }

  private:
    std::array<Input, 2> list = {};
    int count = 0;
  };
  /// What a task needs done before it.
  Inputs inputs(const Task &task) const;
  /// A number below tasks() for every task.
  int id(const Task &task) const {
    return (static_cast<int>(task.kind) * chunks() + task.chunk) * microbatches + task.microbatch;
  }
  /// A number for every kind and chunk.
  int ofKind(TaskKind kind, int chunk) const { return static_cast<int>(kind) * chunks() + chunk; }
  /// One more than the largest id; there may be fewer tasks, where chunks lack kinds.
  int tasks() const { return numKinds * chunks() * microbatches; }
  /// All tasks there are.
  std::vector<Task> all() const;
};

/// Chunk c on stage c mod p; and down and up again: 0 .. p-1, p-1 .. 0.
std::vector<int> roundRobin(int stages, int chunksPerStage);
std::vector<int> vShape(int stages);
/// A problem whose chunks share a stage's seconds equally. Memory in units of one chunk and microbatch.
Problem uniform(int microbatches, std::vector<int> stageOf, double forward, double backward, double weight, bool split,
                double hop = 0);

/// When every task runs; by Problem::id.
struct Timeline {
  std::vector<double> start, end;
  std::vector<Task> sequence; ///< all tasks, none before its needs (times do not show that for tasks that take no time)
};
/// Every task starts when its stage is free and its inputs have come. Nothing if the order stalls (inputs that come in
/// a circle).
std::optional<Timeline> simulate(const Problem &problem, const Order &order);

/// What an order costs. Times are in the problem's unit (seconds, or units of a forward task), memory in that of its
/// limits.
struct Measure {
  double cost = 0;  ///< the longest busy window of one stage, first start to last end: the published definition
  double span = 0;  ///< first start to last end of all: what counts where all meet before the optimizer (gradient norm)
  double ideal = 0; ///< the busiest stage's work
  std::vector<double> memory; ///< per stage, at most

  /// Idle time over cost, and over ideal time: the two rates in use.
  double bubble() const { return (cost - ideal) / cost; }
  double idleOverIdeal() const { return (cost - ideal) / ideal; }
};
std::optional<Measure> measure(const Problem &problem, const Order &order);
/// The most memory of every stage; it depends only on the order.
std::vector<double> peaks(const Problem &problem, const Order &order);
bool fits(const Problem &problem, const Order &order);

/// Where the chunks of a schedule lie: anywhere, on stage c mod p, on stage c, or two on every stage as a V.
enum class ChunkMap { Any, RoundRobin, OneChunk, V };

/// Stages that take equally long, and messages that take no time: numbers of stages, microbatches, and chunks of a
/// stage; seconds of F, B and W of a stage and microbatch (B without W).
struct UniformStages {
  double p, m, v, f, b, w;
  /// Seconds of work of one stage in all microbatches.
  double work() const { return m * (f + b + w); }
};

/// Idle time over ideal time of uniform stages.
struct ClosedForm {
  std::string_view formula;
  bool (*applies)(const UniformStages &);
  double (*idleOverIdeal)(const UniformStages &);
  std::string_view source;
  std::string_view needs = ""; ///< `applies` in words; empty: nothing
  bool equalTimes = false;     ///< of stages whose F, B and W take equally long, as `formula` says
};

/// All that is known of a schedule: flags, documentation, reports and tests get it from here.
struct NamedSchedule {
  std::string_view name;
  ChunkMap chunkMap = ChunkMap::OneChunk;
  int chunksPerStage = 1;                                           ///< unless `name:CHUNKS` says another number
  bool anyChunks = false;                                           ///< whether it may
  bool split = false;                                               ///< gradients of weights are tasks of their own
  std::vector<Task> (*tasks)(const Problem &, int stage) = nullptr; ///< without R
  /// Microbatches that a stage of one chunk holds at most, of any number; null: all.
  int (*inFlight)(int stages, int stage) = nullptr;
  /// That number as a formula, with m microbatches on stage d of p, and its source.
  struct Memory {
    std::string_view formula, source;
  } memory;
  std::vector<ClosedForm> idle; ///< the first that applies

  /// The stage of every chunk; `chunks`: per stage, 0: as many as usual.
  std::vector<int> stageOfChunks(int stages, int chunks = 0) const;
  /// Null: none is known.
  const ClosedForm *closedForm(const UniformStages &stages) const;
  /// Nothing, with the reason in `error`, where the problem's chunks do not suit the schedule (how many a stage has,
  /// where they lie, whether the backward pass is split).
  std::optional<Order> order(const Problem &problem, std::string &error) const;
};

/// In the order of the documentation.
const std::vector<NamedSchedule> &namedSchedules();
/// Null: there is none of this name.
const NamedSchedule *findSchedule(std::string_view name);
/// What may be given as a schedule, in words: "naive, gpipe, ..., auto, or a file of tasks".
std::string scheduleNames();

/// The best order found by span or cost: all named ones that fit, the same with weight gradients moved, and list
/// schedules under the memory limit. Never worse than a named one that fits; the same for the same problem. Nothing,
/// with the reason, if one microbatch is too much.
enum class Goal { Span, Cost };
struct AutoOrder {
  std::string name;
  Order order;
};
std::optional<AutoOrder> autoOrder(const Problem &problem, Goal goal, std::string &error);

/// Microbatch groups of interleaving, for m microbatches and p stages: m div p groups, but at least one, of sizes as
/// equal as possible. None is below min(m, p), since smaller groups deadlock.
std::vector<int> interleavingGroups(int stages, int microbatches);

} // namespace pc::pipeline

#endif
