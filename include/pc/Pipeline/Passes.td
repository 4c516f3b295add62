//===- Passes.td - Passes of the Pipeline room ---------------------------------------===//
#ifndef PC_PIPELINE_PASSES_TD
#define PC_PIPELINE_PASSES_TD

include "mlir/Pass/PassBase.td"

def PipelineParallel : Pass<"pc-pipeline-parallel", "mlir::ModuleOp"> {
  let summary = "Placed program -> the programs of pipeline stages";
  let description = [{
    Cuts the model into chunks of layers, gives every stage its chunks, and writes each stage's program in the order of the schedule.
    The module then holds one nested module `@stage<r>` per coordinate r of the axis, whose `@step` is the program of the ranks with that
    coordinate. `pc.accumulate` is gone: after every `pc.task` stand the ops of one chunk for one microbatch, or a call of the private
    function that holds them (`pc.call`), where the text would get long (`inline-ops`); gradients are added in ascending order of
    microbatches.

    * Layers are told by source names ("h.3." of "h.3.mlp.c_fc"); what comes before the first and after the last may be a chunk, too.
    * A value that another chunk reads goes from chunk to chunk by send and receive. What only parameters go into (casts, gathers)
      is made again instead.
    * `stages`: `cost` (the slowest chunk is as fast as possible), `layers` (as many layers in each), or a list of numbers of layers
      ("3,5,4").
    * `schedule`: one of docs/reference/schedules.md, `auto`, or a file with one line of tasks per stage ("F0.0 F0.1 B0.0 B0.1").
    * Parameters of several stages are in each of them; gradients are exchanged and added in the order of stages.
    * Loss and squared gradient norm are sums over stages (`pc.addend`).

    Input: a verified placed program whose mesh has the axis, which no value uses. Post-condition: `pc-verify-staged`.
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"pp\"", "The mesh axis of stages">,
    Option<"schedule", "schedule", "std::string", "\"1f1b\"", "The order of tasks">,
    Option<"stages", "stages", "std::string", "\"cost\"", "How layers are dealt out: cost, layers, or numbers of layers">,
    Option<"inlineOps", "inline-ops", "int64_t", "50000", "Programs of up to so many ops, of all stages, have their tasks written out">,
    Option<"machine", "machine", "std::string", "\"cpu\"", "On which cuts by cost and the schedule auto reckon: cpu, a100, h100, h200, b200, here (pc-calibrate), or a file *.json">,
    Option<"memory", "memory", "int64_t", "0", "Bytes per rank that cuts by cost and the schedule auto keep to, as far as they can know; 0: any">,
  ];
}

def InlineTasks : Pass<"pc-inline-tasks", "mlir::ModuleOp"> {
  let summary = "The ops of tasks in place of their calls";
  let description = [{
    Programs of stages, at any phase from `staged` to `planned`. Every `pc.call` becomes the ops of its function, in planned programs with
    the homes that they have in this call; the functions go. What is after `planned` (code generation) sees no calls.
  }];
}

def VerifyStaged : Pass<"pc-verify-staged", "mlir::ModuleOp"> {
  let summary = "Check the programs of all stages together";
  let description = [{
    Reads from the programs of all stages, at any phase from `staged` to `planned`, what each of them computes, sends, receives and
    does with all others, and nothing else. A program without stages passes.

    (P1) there is a module for every coordinate of the axis of stages, and all have one mesh; (P2) every op that computes stands after
    a `pc.task`; each task is there once, on the stage of its chunk, after what it needs; (P3) the n-th send and receive of a flow carry the
    same message of the same type; (P4) all stages call collectives over the axis of stages alike; (P5) nothing waits in a circle;
    (P6) every task works on its own microbatch, and what is added up over microbatches and stages for a parameter, the loss and the
    norm has each addend exactly once before anything else reads it; (P7) a stage updates the parameters and states that it holds.

    Ranks that differ on other axes run the same text with partners at the same distance, so checking stages is checking all ranks.
  }];
}

#endif
