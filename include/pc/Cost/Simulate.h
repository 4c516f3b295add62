//===- Simulate.h - A step in time, before anything runs -------------------------------------===//
// Input: a planned program and a machine model. Result: the predicted seconds of a step, and a timeline of each stage.
// All times are seconds from the beginning of the step. The search, the report and the trace use the same prediction.
//===-----------------------------------------------------------------------------===//
#ifndef PC_COST_SIMULATE_H
#define PC_COST_SIMULATE_H

#include "pc/Cost/Machine.h"
#include "pc/IR/PC.h"
#include "llvm/Support/JSON.h"

namespace pc {

/// An interval of time in which a stage works, waits for its own moves, or waits for a message that is in flight.
struct StageSpan {
  enum Type { Work, Move, Message } type = Work;
  TaskKind kind = TaskKind::Optimizer; ///< of work
  llvm::StringRef what;                ///< of moves: a literal
  int64_t from = -1;                   ///< for a message, the stage that sent it
  int64_t chunk = -1, microbatch = -1; ///< of tasks
  double start = 0, end = 0;
  double moves = 0;      ///< seconds of collectives in it
  int64_t liveBytes = 0; ///< activations, at most
  bool isTask() const { return chunk >= 0; }
  /// "forward", ..., "optimizer", "move" or "message".
  llvm::StringRef category() const {
    return type == Work ? stringifyTaskKind(kind) : type == Move ? "move" : "message";
  }
};

/// The timeline of a stage over a step.
struct StageTimeline {
  std::vector<StageSpan> spans; ///< in the order of time
  double end = 0;
  /// The seconds of the stage by kind of work, and its seconds of waiting for its own moves, for messages that are in
  /// flight, and for other stages.
  std::array<double, getMaxEnumValForTaskKind() + 1> work = {};
  double moves = 0, messages = 0, idle = 0;
  /// The seconds during which the stage's own moves continue while it waits for other stages after its last task.
  double movesBesideIdle = 0;
};
using StepTimeline = std::vector<StageTimeline>;

/// The time of a step by the machine model. It is a prediction, not a measurement.
struct Prediction {
  double stepSeconds = 0;
  double programSeconds = 0; ///< the part of the program; the rest is for nodes that are out of step, and
                             ///< work outside of the program
  /// One entry per stage; empty for a program without stages. There can be a million spans, so they become text when
  /// they are written.
  StepTimeline timeline;
};

/// Called for everything that takes time, in the order of the program. Arguments are the op (or a `pc.start` for all
/// its moves), its phase of the step, and the seconds from which and to which it works or is in flight.
using StepListener = llvm::function_ref<void(mlir::Operation *, StepPhase, double start, double end)>;

/// Seconds of ops for which better values are known than `secondsOf` computes.
using OpSeconds = llvm::DenseMap<mlir::Operation *, double>;

/// Runs the planned program, or the programs of all stages, op by op, against the clock of `machine`. `listener` may be
/// null; it is called only for a program without stages.
///
/// An op takes the seconds in `known`, or else `secondsOf`. A message takes `messageSeconds`, during which sender and
/// receiver continue. Moves between start and wait run one after another during other work, which then takes longer
/// (`contendShare`). All ranks of a stage do everything at the same time. If `withBytes` is false, spans have no live
/// bytes, because computing these takes longer than computing the times. Fails, with an error, if stages wait for each
/// other forever or a program is not planned.
llvm::FailureOr<Prediction> predictStep(mlir::ModuleOp planned, const MachineModel &machine,
                                        const OpSeconds &known = OpSeconds(), StepListener listener = {},
                                        bool withBytes = true);

/// Writes `value` with its keys in order, as LLVM does. Every `traceEvents` in it is replaced by the timeline, in the
/// format of the runtime's --trace: one process per stage, times in microseconds. Tasks have the arguments live_bytes
/// (the most activations during the task) and moves (microseconds of collectives in it).
void writeWithTimeline(const llvm::json::Value &value, const StepTimeline &timeline, llvm::json::OStream &out);

} // namespace pc

#endif
