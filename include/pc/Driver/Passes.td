//===- Passes.td - Passes of the Driver room ---------------------------------------===//
#ifndef PC_DRIVER_PASSES_TD
#define PC_DRIVER_PASSES_TD

include "mlir/Pass/PassBase.td"

def SignStep : Pass<"pc-sign-step", "mlir::ModuleOp"> {
  let summary = "Record in a step program the data that a compile from a later phase needs";
  let description = [{
    The pass writes data into a step program that a compile needs to continue from a later phase. It sets attributes of
    the module, which all later phases keep: `pc.plan` (the mesh and the tactics of all phases), `pc.target` and `pc.step`.
    `pc.step` is a fingerprint of the function that the step program computes. Every program derived from the step program
    must have the same fingerprint (docs/what-is-proved.md). A program that the proof cannot read gets no `pc.step`.

    ```mlir
    // pc-opt --pc-sign-step="mesh=dp=2 tactics=pc-data-parallel"
    // input: step.mlir
    func.func @step() {
    // becomes
    module attributes {pc.plan = {mesh = "dp=2", tactics = ["pc-data-parallel"]}, pc.step = ..., pc.target = ...
    ```
  }];
  let options = [
    Option<"mesh", "mesh", "std::string", "", "Axes, outermost first: dp=2,tp=2">,
    ListOption<"tactics", "tactics", "std::string", "The tactics of the plan, in order">,
    Option<"target", "target", "std::string", "\"cpu\"", "cpu or cuda">,
    Option<"attention", "attention", "std::string", "\"library\"", "CUDA: library or generated">,
    ListOption<"archs", "archs", "std::string", "CUDA: the architectures to compile for; the default ones if empty">,
  ];
}

#endif
