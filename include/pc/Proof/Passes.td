//===- Passes.td - Passes of the Proof room ----------------------------------------===//
#ifndef PC_PROOF_PASSES_TD
#define PC_PROOF_PASSES_TD

include "mlir/Pass/PassBase.td"

def Prove : Pass<"pc-prove", "mlir::ModuleOp"> {
  let summary = "Prove that a program computes what its step program computes";
  let description = [{
    For programs of the phases placed, staged, local, scheduled and planned; changes nothing. `reference` is a file with the step program.
    `before`, if given, is the program of an earlier phase, which is proved first: messages then name the op after which the two differ.
  }];
  let options = [
    Option<"reference", "reference", "std::string", "", "The step program, a file">,
    Option<"before", "before", "std::string", "", "The program of an earlier phase, a file">,
  ];
}

#endif
