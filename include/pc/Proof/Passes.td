//===- Passes.td - Passes of the Proof room ----------------------------------------===//
#ifndef PC_PROOF_PASSES_TD
#define PC_PROOF_PASSES_TD

include "mlir/Pass/PassBase.td"

def Prove : Pass<"pc-prove", "mlir::ModuleOp"> {
  let summary = "Prove that a program computes what its step program computes";
  let description = [{
    The pass proves that a program computes what its step program computes. The program may be of the phases placed, staged, local, scheduled
    and planned, and does not change. `reference` is a file with the step program. `before`, if given, is the program of an earlier phase, which
    is proved first; messages then name the op after which the two differ.

    The loss is a sum over the batch, which is split, and nothing adds the sums of the ranks:

    ```mlir
    // pc-opt --pc-prove=reference=sum.mlir
    pc.mesh <dp = 2>
    func.func @step() {
      %x = pc.input loss_weights dims ["batch"] global [8] layout <[dp]> : tensor<4xf32>
      %s = pc.einsum "b ->" %x : (tensor<4xf32>) -> tensor<f32>
      pc.output loss "loss" %s global [] layout <[]> : tensor<f32>
      return
    }
    // error: phase 'given' does not compute the same as the one-device program
    ```
  }];
  let options = [
    Option<"reference", "reference", "std::string", "", "The step program, a file">,
    Option<"before", "before", "std::string", "", "The program of an earlier phase, a file">,
  ];
}

#endif
