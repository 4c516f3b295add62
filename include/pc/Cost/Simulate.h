//===- Simulate.h - A step in time, before anything runs -------------------------------------===//
#ifndef PC_COST_SIMULATE_H
#define PC_COST_SIMULATE_H

#include "pc/Cost/Machine.h"
#include "pc/IR/PC.h"
#include "llvm/Support/JSON.h"

namespace pc {

/// What a stage does in a stretch of time.
struct StageSpan {
  /// The first five are those of pc.task.
  enum Use { Forward, Recompute, Backward, Weight, Optimizer, Move, Message } use = Optimizer;
  llvm::StringRef what;                ///< of moves: a literal
  int64_t from = -1;                   ///< of messages: the stage that sent it
  int64_t chunk = -1, microbatch = -1; ///< of tasks
  double start = 0, end = 0;
  double moves = 0;      ///< seconds of collectives in it
  int64_t liveBytes = 0; ///< activations, at most
  bool isTask() const { return chunk >= 0; }
};
/// Per stage, in the order of time.
using StepTimeline = std::vector<std::vector<StageSpan>>;

/// How long a step takes, by the machine model: a prediction, not a measurement.
struct Prediction {
  double stepSeconds = 0;
  /// Of programs of stages, what a report calls "pipeline":
  /// * schedule (as given), machine (its name), stages, chunks, microbatches, slots (of the longest queue of messages).
  /// * step_seconds: until the last stage is done. cost_seconds: the longest time of a stage from its first task to the
  ///   end of its last, without the optimizer. ideal_seconds: the tasks of the busiest stage. bubble: (cost - ideal) /
  ///   cost. idle_over_ideal: (cost - ideal) / ideal. theory: the latter in closed form, where one is known for stages
  ///   that take equally long and messages that take no time.
  /// * per_stage: the chunks; seconds by what they went into, which add up to step_seconds (move: what a stage does not
  ///   overlap of its collectives; message: waits for one that is under way; idle: waits for other stages);
  ///   peak_microbatches: most microbatches between their first forward and the end of their gradients, a chunk of v
  ///   counting 1/v; peak_activation_bytes.
  /// * traceEvents: null, the place of `timeline` (writeWithTimeline).
  std::optional<llvm::json::Object> pipeline;
  /// Of programs of stages. There can be a million spans, so they become text when they are written.
  StepTimeline timeline;
};

/// Runs the planned program, or those of all stages, against the clock of `machine`, op by op.
///
/// Time: an op takes `secondsOf`, a message `messageSeconds`, during which sender and receiver go on; moves between
/// start and wait go on one after another beside the work. Ranks of a stage do everything at once. Fails, with an
/// error, where stages wait for each other forever or a program is not planned.
llvm::FailureOr<Prediction> predictStep(mlir::ModuleOp planned, llvm::StringRef schedule, const MachineModel &machine);

/// Writes `value` with its keys in order, as LLVM does, and in place of every `traceEvents` in it the timeline in the
/// format of the runtime's --trace: one process per stage, times in microseconds; args of tasks: live_bytes (most
/// activations during the task) and moves (microseconds of collectives in it).
void writeWithTimeline(const llvm::json::Value &value, const StepTimeline &timeline, llvm::json::OStream &out);

} // namespace pc

#endif
