//===- Passes.td - Passes of the Driver room ---------------------------------------===//
#ifndef PC_DRIVER_PASSES_TD
#define PC_DRIVER_PASSES_TD

include "mlir/Pass/PassBase.td"

def SignStep : Pass<"pc-sign-step", "mlir::ModuleOp"> {
  let summary = "Write into a step program what a compile that goes on from a later phase must know";
  let description = [{
    Attributes of the module, which all later phases keep: `pc.plan` (the mesh, the tactics of all phases, the microbatches), `pc.target`, and `pc.step`,
    a fingerprint of what the step program computes, which every program made of it must have
    (docs/what-is-proved.md). A program that the proof cannot read gets no `pc.step`.
  }];
  let options = [
    Option<"mesh", "mesh", "std::string", "", "Axes, outermost first: dp=2,tp=2">,
    ListOption<"tactics", "tactics", "std::string", "The tactics of the plan, in order">,
    Option<"microbatches", "microbatches", "int64_t", "1", "Per step">,
    Option<"target", "target", "std::string", "\"cpu\"", "cpu or cuda">,
    Option<"attention", "attention", "std::string", "\"library\"", "CUDA: library or generated">,
    ListOption<"archs", "archs", "std::string", "CUDA: the architectures to compile for; the default ones if empty">,
  ];
}

#endif
