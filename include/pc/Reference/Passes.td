//===- Passes.td - Passes of the Reference room ---------------------------------------===//
#ifndef PC_REFERENCE_PASSES_TD
#define PC_REFERENCE_PASSES_TD

include "mlir/Pass/PassBase.td"

def Interpret : Pass<"pc-interpret", "mlir::ModuleOp"> {
  let summary = "Run a program of any phase in double precision and print a digest of its results";
  let description = [{
    The pass runs a program of any phase (model, step, placed, local, scheduled, planned) in double precision, on as many simulated ranks as the
    mesh has. A planned program keeps its values in an arena per rank, so a value that is overwritten too early shows in the results. Parameters,
    states, tokens and hyper-parameters are drawn from their names, global indices and `seed`, so two programs of one model read the same values.
    The program does not change. The pass prints one line per output and update on standard output. (With `-o /dev/null`, pc-opt
    prints nothing else.) `max` is the largest absolute value. `mix` is a sum with pseudo-random weights, which changes when
    elements are permuted.

    ```mlir
    // pc-opt --pc-differentiate=optimizer=sgd --pc-set-mesh=mesh=dp=2 --pc-data-parallel --pc-interpret
    // input: words.mlir
    %w = pc.parameter "w" dims ["vocab", "out"] ...
    ...
    %y = pc.embedding %w, %x : (tensor<8x6xf32>, tensor<4xi32>) -> tensor<4x6xf32>
    %loss = pc.einsum "b o, b o ->" %y, %y : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<f32>
    pc.output loss "loss" %loss : tensor<f32>
    // prints
    loss loss: scalar max 2.4223476... sum 2.4223476... mix 5.7277748...
    gradient w: 8x6 max 2.3455025... sum -2.4933104... mix -7.0330756...
    grad_norm grad_norm: scalar max ...
    update w: 8x6 max ...
    ```

    In a placed program, every intermediate value is assembled from the ranks and compared with the value on one device.
    The pass fails if they differ. Values of type bf16 are rounded to nearest even (inside `pc.fusion` only the yielded
    values are rounded); ranks and one device are then not compared. With `exact` nothing is rounded, and a wrong plan
    is detected at 1e-9 also in bf16.
  }];
  let options = [
    Option<"seed", "seed", "uint64_t", "1", "Seed of everything that the program reads">,
    Option<"print", "print", "std::string", "\"outputs\"", "outputs, values (also the results of every op) or none">,
    Option<"exact", "exact", "bool", "false", "Do not round values of type bf16">,
  ];
}

def CheckGradients : Pass<"pc-check-gradients", "mlir::ModuleOp"> {
  let summary = "Compare the gradients of a step program with finite differences of its loss";
  let description = [{
    The pass compares gradients of a step program with finite differences of its loss. For every `pc.output gradient "w"` and `samples` elements
    of parameter w (all of them if it has no more), it compares the output with (loss(w + epsilon) - loss(w - epsilon)) / (2 epsilon). The whole
    program runs in the interpreter. The pass fails if they differ by more than `tolerance` times the largest element of that gradient. The
    program does not change; the pass prints one line per gradient.

    ```mlir
    // pc-opt --pc-differentiate=optimizer=sgd --pc-check-gradients
    // input: words.mlir
    %loss = pc.einsum "b o, b o ->" %y, %y : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<f32>
    pc.output loss "loss" %loss : tensor<f32>
    // prints
    gradient w: 12 elements, largest relative difference ...
    ```
  }];
  let options = [
    Option<"seed", "seed", "uint64_t", "1", "Seed of everything that the program reads">,
    Option<"epsilon", "epsilon", "double", "1e-4", "Perturbation of one element">,
    Option<"samples", "samples", "int64_t", "12", "Elements per parameter, spread evenly">,
    Option<"tolerance", "tolerance", "double", "1e-6", "Largest relative difference">,
  ];
}

#endif
