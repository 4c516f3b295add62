//===- PipelineReport.h - What a report calls "pipeline" -----------------------------------===//
// Input: the planned programs of all stages and the prediction of a step. Result: the part of a report about the
// pipeline; times are seconds.
//===-----------------------------------------------------------------------------===//
#ifndef PC_PIPELINE_PIPELINEREPORT_H
#define PC_PIPELINE_PIPELINEREPORT_H

#include "pc/Cost/Simulate.h"

namespace pc::pipeline {

/// Reports the planned programs of stages, as they were simulated on `machine`:
/// * schedule (as given), machine (its name), stages, chunks, microbatches, slots (of the longest queue of messages).
/// * step_seconds: the time until the last stage is done.
/// * cost_seconds: the longest time that a stage takes from its first task to the end of its last one, without the
///   optimizer.
/// * ideal_seconds: the tasks of the busiest stage.
/// * bubble: (cost - ideal) / cost. idle_over_ideal: (cost - ideal) / ideal.
/// * theory: idle_over_ideal in closed form, if one is known. It assumes stages that take equally long and messages
///   that take no time.
/// * per_stage:
///   - the chunks;
///   - seconds by cause, which add up to step_seconds. "move": the part of its collectives that a stage does not
///     overlap; "message": waits for a message that is in flight; "idle": waits for other stages;
///   - peak_microbatches: most microbatches between their first forward and the end of their gradients. A chunk counts
///     1/v if the stage has v chunks;
///   - peak_activation_bytes.
/// * traceEvents: null, which writeWithTimeline replaces by the timeline.
llvm::json::Object reportPipeline(mlir::ModuleOp planned, const Prediction &prediction, llvm::StringRef schedule,
                                  llvm::StringRef machine);

} // namespace pc::pipeline

#endif
