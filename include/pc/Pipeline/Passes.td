//===- Passes.td - Passes of the Pipeline room ---------------------------------------===//
#ifndef PC_PIPELINE_PASSES_TD
#define PC_PIPELINE_PASSES_TD

include "mlir/Pass/PassBase.td"

def PipelineParallel : Pass<"pc-pipeline-parallel", "mlir::ModuleOp"> {
  let summary = "Placed program -> the programs of pipeline stages";
  let description = [{
    Placed program -> the programs of pipeline stages. The pass cuts the model into chunks of layers, gives every stage its chunks, and writes
    the program of each stage in the order of the schedule. The module then holds one nested module `@stage<r>` per coordinate r of the axis. Its
    `@step` is the program of the ranks with that coordinate. `pc.accumulate` is removed. After every `pc.task` come the ops of one chunk for one
    microbatch. If the program would get long (`inline-ops`), these ops are in a private function, and `pc.task` is
    followed by a call of it (`pc.call`). Gradients are added in ascending order of microbatches.

    ```mlir
    // pc-opt --pc-differentiate="optimizer=none microbatches=2" --pc-set-mesh=mesh=pp=2 --pc-pipeline-parallel=stages=1,1
    // input: layers.mlir
    %a0 = pc.activation silu %y0 : ... loc("h.0.act")
    %y1 = pc.einsum "b s e, e f -> b s f" %a0, %w1 : ... loc("h.1.up")
    // becomes
    module @stage0 ...
    ...
    pc.task forward chunk 0 microbatch 0
    ...
    %a0 = pc.activation silu ...
    pc.send %a0 to 1 flow 0 message 0 slots 2 : tensor<2x8x8xf32, #pc.place<[_, _, _]>>
    pc.task forward chunk 0 microbatch 1
    ...
    module @stage1 ...
    ...
    pc.task forward chunk 1 microbatch 0
    %received = pc.receive from 0 flow 0 message 0 slots 2 : tensor<2x8x8xf32, #pc.place<[_, _, _]>>
    %y1 = pc.einsum "b s e, e f -> b s f" %received, %w1 : ...
    ...
    pc.task forward chunk 1 microbatch 1
    ```

    * Layers are identified by source names ("h.3." of "h.3.mlp.c_fc"). The ops before the first layer, or after the last one, may also be a chunk.
    * A value that another chunk reads is passed from chunk to chunk by send and receive. Values that depend only on
      parameters (casts, gathers) are computed again instead.
    * `stages`: `cost` (the slowest chunk is as fast as possible), `layers` (equal numbers of layers), or a list of
      numbers of layers ("3,5,4").
    * `schedule`: one of docs/reference/schedules.md, `auto`, or a file with one line of tasks per stage ("F0.0 F0.1 B0.0 B0.1").
    * If several stages use a parameter, each has a copy. Their gradients are exchanged and added in the order of
      stages.
    * Loss and squared gradient norm are sums over stages (`pc.addend`).
    * A step that generates (`pc-generate-steps`) has one task per stage and part: microbatch 0 is the part for tokens
      that are fed back, and microbatch 1 the part for prompts. Options other than `stages` have no effect on it.

    The input is a verified placed program whose mesh has the axis, and in which no value uses this axis. Post-condition: `pc-verify-staged`.
  }];
  let options = [
    Option<"axis", "axis", "std::string", "\"pp\"", "The mesh axis of stages">,
    Option<"schedule", "schedule", "std::string", "\"1f1b\"", "The order of tasks">,
    Option<"stages", "stages", "std::string", "\"cost\"", "How layers are distributed to stages: cost, layers, or numbers of layers">,
    Option<"inlineOps", "inline-ops", "int64_t", "50000", "Write the ops of tasks instead of calls if all stages then have at most this many ops">,
    Option<"machine", "machine", "std::string", "\"cpu\"", "Machine for which cuts by cost and the schedule auto are computed: cpu, a100, h100, h200, b200, here (pc-calibrate), or a file *.json">,
    Option<"memory", "memory", "int64_t", "0", "Limit in bytes per rank for cuts by cost and the schedule auto, as far as they can estimate it; 0: no limit">,
  ];
}

def InlineTasks : Pass<"pc-inline-tasks", "mlir::ModuleOp"> {
  let summary = "Replace calls of tasks by the ops of the tasks";
  let description = [{
    The pass works on programs of stages, at any phase from `staged` to `planned`. Every `pc.call` is replaced by the
    ops of its function, and the functions are removed. In planned programs the ops get the homes that they have in this
    call. Passes after `planned` (code generation) see no calls.

    ```mlir
    // pc-opt --pc-inline-tasks
    module @stage0 attributes {pc.stage = 0 : i64} {
      pc.mesh <pp = 1>
      func.func @step() {
        %x = pc.input tokens dims ["microbatch", "batch"] : tensor<2x4xf32>
        pc.task forward chunk 0 microbatch 0
        %m = pc.microbatch %x[0] : tensor<2x4xf32> -> tensor<4xf32>
        %y = pc.call @forward0(%m) : (tensor<4xf32>) -> tensor<4xf32>
        return
      }
      func.func private @forward0(%a: tensor<4xf32>) -> tensor<4xf32> {
        %b = pc.exp %a : (tensor<4xf32>) -> tensor<4xf32>
        return %b : tensor<4xf32>
      }
    }
    // becomes
        pc.task forward chunk 0 microbatch 0
        %m = pc.microbatch %x[0] : tensor<2x4xf32> -> tensor<4xf32>
        %y = pc.exp %m : (tensor<4xf32>) -> tensor<4xf32>
        return
      }
    }
    ```
  }];
}

def VerifyStaged : Pass<"pc-verify-staged", "mlir::ModuleOp"> {
  let summary = "Check the programs of all stages together";
  let description = [{
    The pass checks the programs of all stages together. It works at any phase from `staged` to `planned`, and reads
    only these programs: the tasks, sends, receives and collectives of each. A program without stages passes. The pass
    checks that:

    * (P1) there is a module for every coordinate of the axis of stages, and all have one mesh;
    * (P2) every op that computes follows a `pc.task`; each task exists once, on the stage of its chunk, after the tasks
      that it needs;
    * (P3) the n-th send and the n-th receive of a flow carry the same message of the same type;
    * (P4) all stages call collectives over the axis of stages in the same way;
    * (P5) there is no deadlock, in which stages wait for each other in a cycle;
    * (P6) every task works on its own microbatch; the sums over microbatches and stages for a parameter, the loss and
      the norm contain each addend exactly once before anything else reads them;
    * (P7) a stage updates the parameters and states that it holds.

    Ranks that differ only on other axes run the same program with corresponding partners, so a check of the stages
    covers all ranks.

    ```mlir
    // pc-opt --pc-verify-staged
    module attributes {pc.stage_axis = "pp"} {
      module @stage0 attributes {pc.stage = 0 : i64} {
        pc.mesh <pp = 1>
        func.func @step() {
          %x = pc.input tokens dims ["microbatch", "batch"] : tensor<2x4xf32>
          pc.task forward chunk 0 microbatch 0
          %m = pc.microbatch %x[0] : tensor<2x4xf32> -> tensor<4xf32>
          return
        }
      }
    }
    // error: the programs of the stages do not match: missing: stage 0 never runs F0.1 (P2)
    ```
  }];
}

#endif
