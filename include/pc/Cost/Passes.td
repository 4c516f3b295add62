//===- Passes.td - Passes of the Cost room ---------------------------------------===//
#ifndef PC_COST_PASSES_TD
#define PC_COST_PASSES_TD

include "mlir/Pass/PassBase.td"

def PrintReport : Pass<"pc-print-report", "mlir::ModuleOp"> {
  let summary = "Print the report of a planned program as JSON";
  let description = [{
    The pass prints the report of `pc-compile --report` (pc/Cost/Report.h) on standard output. The program does not
    change.

    ```mlir
    // pc-opt --pc-differentiate=optimizer=none --pc-set-mesh=mesh=dp=2 --pc-data-parallel --pc-localize --pc-plan-memory --pc-print-report
    // input: words.mlir
    %w = pc.parameter "w" dims ["vocab", "out"] init <normal, 1.0>
    source <"w", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    ...
    pc.output loss "loss" %loss : tensor<f32>
    // prints
    "flops_per_step": 48,
    "mesh": {
      "dp": 2
    },
    ...
    "parameters": 48,
    ...
    "arena_bytes": {
      "device": 384,
    ...
    "axis": "dp",
    "count": 1,
    "move": "all_reduce",
    "payload_bytes": 4,
    ```
  }];
  let options = [Option<"plan", "plan", "std::string", "\"\"", "The plan's text, copied into the report">];
}

#endif
