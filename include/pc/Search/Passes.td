//===- Passes.td - Passes of the Search room ---------------------------------------===//
#ifndef PC_SEARCH_PASSES_TD
#define PC_SEARCH_PASSES_TD

include "mlir/Pass/PassBase.td"

def AutoParallel : Pass<"pc-auto-parallel", "mlir::ModuleOp"> {
  let summary = "Search for a plan of a model and apply it up to a phase";
  let description = [{
    Model program -> program of the phase `to`. The pass searches for a plan of the model and applies it up to this phase. The
    plan is the one that `pc-compile --auto` finds with the same flags. The pass writes it to the attribute `pc.plan`, and
    describes the search on standard error. It fails if no plan is legal or fits.

    ```mlir
    // pc-opt --pc-auto-parallel="flags='ranks=2 auto=dp'"
    // input: layers.mlir
    %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32>
    // becomes
    module attributes {pc.plan = {mesh = "dp=2", tactics = ["pc-data-parallel{axis=dp mode=ddp}"]}, ...
    ...
    %tokens = pc.input tokens dims ["microbatch", "batch", "sequence"] : tensor<1x4x8xi32, #pc.place<[_, dp, _]>>
    ```
  }];
  let dependentDialects = ["pc::PCDialect"];
  let options = [
    Option<"flags", "flags", "std::string", "\"\"", "Flags of pc-compile, without --; flags of strategies stay fixed">,
    Option<"to", "to", "std::string", "\"placed\"", "step, placed, staged, local, scheduled or planned">,
  ];
}

#endif
