//===- Schedule.h - Pipeline schedules as values ------------------------------------------===//
// Describes a problem (stages, chunks of the model, microbatches, times, memory), orders that solve it, and the cost of
// an order. It does not depend on ops. A *stage* is the group of ranks at one coordinate of the pipeline axis. A
// *chunk* is a contiguous piece of the model.
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

/// Kinds of tasks: forward; recomputation of values that the forward pass did not keep; gradient of the input; gradient
/// of the weights. The optimizer is not a task: it runs after all of them.
inline constexpr std::array taskKinds = {TaskKind::Forward, TaskKind::Recompute, TaskKind::Backward, TaskKind::Weight};
constexpr int numKinds = taskKinds.size();
/// The letter of a kind: 'F', 'R', 'B' or 'W'.
char letterOf(TaskKind kind);

/// One kind of work of one chunk for one microbatch.
struct Task {
  TaskKind kind = TaskKind::Forward;
  int chunk = 0, microbatch = 0;
  friend bool operator==(const Task &, const Task &) = default;
};
/// "F3.0" for the forward task of chunk 3 and microbatch 0.
std::string text(const Task &task);

/// The tasks of each stage in the order in which it runs them. In every order that is made here, the tasks of one kind
/// and chunk take microbatches in ascending order. So gradients are summed in the same order under every schedule.
using Order = std::vector<std::vector<Task>>;

/// The problem to schedule. Vectors are per chunk unless their comment says otherwise. An empty vector means all zeros
/// (`held`: all ones).
struct Problem {
  int stages = 1, microbatches = 1;
  std::vector<int> stageOf;                      ///< the stage of each chunk, chunks in model order
  std::vector<double> forward, backward, weight; ///< seconds; `backward` without the gradient of the weights
  bool training = true;                          ///< false: there are only F tasks
  bool split = false;                            ///< false: one B task lasts backward + weight, and there is no W
  std::vector<double> recompute;                 ///< seconds; 0: the chunk keeps all values that it needs
  std::vector<double> hop;                       ///< seconds from chunk c to c + 1 if their stages differ
  std::vector<double> hopBack;                   ///< seconds of gradients from c + 1 to c; empty: the same as `hop`
  std::vector<double> held;                      ///< memory taken when F starts
  std::vector<double> heldByRecompute;           ///< memory added when R starts
  std::vector<double> releasedByBackward;        ///< memory that the end of B frees if `split`; W frees the rest
  std::vector<double> limit;                     ///< per stage; empty: none
  double optimizer = 0;                          ///< seconds after a stage's last task
  std::vector<bool> noGradientFrom;              ///< chunks to which the next one sends no gradient; empty: none
  /// The extra seconds of tasks of the first and of the last microbatch, for each kind and chunk (`ofKind`): they wait
  /// for parameters that are gathered once per step, or for sums of gradients. Empty: no extra seconds.
  std::vector<double> longerFirst, longerLast;

  /// The number of chunks of all stages.
  int chunks() const { return static_cast<int>(stageOf.size()); }
  /// Whether the chunk has tasks of this kind: R if something is recomputed, W if the backward pass is split.
  bool has(TaskKind kind, int chunk) const;
  /// Seconds of a task, including the waits of the first and last microbatch.
  double seconds(const Task &task) const;
  /// Returns the memory that a task takes at its start (`takes`) or frees at its end (`frees`).
  double takes(const Task &task) const;
  double frees(const Task &task) const;
  /// Returns the memory that one microbatch takes on a stage, in all chunks of the stage. No schedule needs less.
  double floor(int stage) const;
  /// Seconds of work of the busiest stage.
  double ideal() const;

  /// A task that must be done before another one starts.
  struct Input {
    Task task;
    double delay; ///< seconds until its result arrives
  };
  /// Up to two inputs.
  class Inputs {
  public:
    void add(const Input &input) { list[count++] = input; }
    const Input *begin() const { return list.data(); }
    const Input *end() const { return list.data() + count; }

  private:
    std::array<Input, 2> list = {};
    int count = 0;
  };
  /// The tasks that must be done before `task`.
  Inputs inputs(const Task &task) const;
  /// Returns a number below tasks() that is different for every task.
  int id(const Task &task) const {
    return (static_cast<int>(task.kind) * chunks() + task.chunk) * microbatches + task.microbatch;
  }
  /// Returns a number that is different for every kind and chunk.
  int ofKind(TaskKind kind, int chunk) const { return static_cast<int>(kind) * chunks() + chunk; }
  /// One more than the largest id. If chunks lack some kinds, there are fewer tasks.
  int tasks() const { return numKinds * chunks() * microbatches; }
  /// All tasks of the problem.
  std::vector<Task> all() const;
};

/// Returns the stage of each chunk. `roundRobin` puts chunk c on stage c mod p. `vShape` goes down and up again: 0 ..
/// p-1, p-1 .. 0.
std::vector<int> roundRobin(int stages, int chunksPerStage);
std::vector<int> vShape(int stages);
/// Returns a problem whose chunks share a stage's seconds equally. Its unit of memory is one chunk and microbatch.
Problem uniform(int microbatches, std::vector<int> stageOf, double forward, double backward, double weight, bool split,
                double hop = 0);

/// The start and the end of every task, indexed by Problem::id.
struct Timeline {
  std::vector<double> start, end;
  std::vector<Task> sequence; ///< all tasks, each after its inputs (times do not show this for tasks that take no time)
};
/// Every task starts when its stage is free and its inputs have arrived. Returns nullopt if the order stalls because
/// inputs form a cycle.
std::optional<Timeline> simulate(const Problem &problem, const Order &order);

/// The cost of an order. Times have the problem's unit (seconds, or units of a forward task), memory has the unit of
/// its limits.
struct Measure {
  double cost = 0;  ///< the published definition: the longest time of one stage from first start to last end
  double span = 0;  ///< first start to last end of all stages: the cost if they synchronise before the optimizer
  double ideal = 0; ///< the busiest stage's work
  std::vector<double> memory; ///< per stage: the peak

  /// The two usual rates of a bubble: idle time over cost, and idle time over ideal time.
  double bubble() const { return (cost - ideal) / cost; }
  double idleOverIdeal() const { return (cost - ideal) / ideal; }
};
std::optional<Measure> measure(const Problem &problem, const Order &order);
/// The peak memory of every stage. It depends only on the order.
std::vector<double> peaks(const Problem &problem, const Order &order);
bool fits(const Problem &problem, const Order &order);

/// Says on which stages the chunks of a schedule lie: on any, on stage c mod p, on stage c, or two on every stage as a
/// V.
enum class ChunkMap { Any, RoundRobin, OneChunk, V };

/// Stages of equal duration, with messages that take no time. p, m and v are the numbers of stages, of microbatches and
/// of chunks per stage; f, b and w are the seconds of F, B (without W) and W of one stage and microbatch.
struct UniformStages {
  double p, m, v, f, b, w;
  /// Seconds of work of one stage in all microbatches.
  double work() const { return m * (f + b + w); }
};

/// Idle time over ideal time of uniform stages, in closed form.
struct ClosedForm {
  std::string_view formula;
  bool (*applies)(const UniformStages &);
  double (*idleOverIdeal)(const UniformStages &);
  std::string_view source;
  std::string_view needs = ""; ///< `applies` in words; empty: it always applies
  bool equalTimes = false;     ///< `formula` assumes that F, B and W take equally long
};

/// All facts about a schedule. Flags, documentation, reports and tests read them here.
struct NamedSchedule {
  std::string_view name;
  ChunkMap chunkMap = ChunkMap::OneChunk;
  int chunksPerStage = 1;                                           ///< the default; `name:CHUNKS` sets another number
  bool anyChunks = false;                                           ///< whether `name:CHUNKS` is allowed
  bool split = false;                                               ///< gradients of weights are separate tasks
  std::vector<Task> (*tasks)(const Problem &, int stage) = nullptr; ///< the order of a stage, without R tasks
  /// Returns how many microbatches a stage of one chunk holds at most; null: it holds all.
  int (*inFlight)(int stages, int stage) = nullptr;
  /// `inFlight` as a formula for stage d of p with m microbatches, and the source of the formula.
  struct Memory {
    std::string_view formula, source;
  } memory;
  std::vector<ClosedForm> idle; ///< the first one that applies is used

  /// The stage of every chunk. `chunks` is the number per stage; 0: the schedule's usual number.
  std::vector<int> stageOfChunks(int stages, int chunks = 0) const;
  /// The closed form that applies to these stages; null if none is known.
  const ClosedForm *closedForm(const UniformStages &stages) const;
  /// Orders the tasks of a problem. Returns nullopt, with the reason in `error`, if the problem does not suit the
  /// schedule: the number of chunks per stage, their stages, or whether the backward pass is split.
  std::optional<Order> order(const Problem &problem, std::string &error) const;
};

/// All schedules, in the order of the documentation.
const std::vector<NamedSchedule> &namedSchedules();
/// The schedule called `name`, or null.
const NamedSchedule *findSchedule(std::string_view name);
/// The possible values of the flag, in words: "naive, gpipe, ..., auto, or a file of tasks".
std::string scheduleNames();

/// Returns the best order found, by span or by cost. Tries all named schedules that fit, then the same schedules with
/// gradients of weights moved, and list schedules under the memory limit. The result is deterministic and never worse
/// than a named schedule that fits. Returns nullopt, with the reason, if one microbatch needs too much memory.
enum class Goal { Span, Cost };
struct AutoOrder {
  std::string name;
  Order order;
};
std::optional<AutoOrder> autoOrder(const Problem &problem, Goal goal, std::string &error);

/// The sizes of the groups of microbatches in interleaving, for m microbatches and p stages: m div p groups, but at
/// least one, as equal as possible. None is smaller than min(m, p), since smaller groups deadlock.
std::vector<int> interleavingGroups(int stages, int microbatches);

} // namespace pc::pipeline

#endif
