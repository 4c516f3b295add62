//===- Passes.td - Passes of the Reference room ---------------------------------------===//
#ifndef PC_REFERENCE_PASSES_TD
#define PC_REFERENCE_PASSES_TD

include "mlir/Pass/PassBase.td"

def Interpret : Pass<"pc-interpret", "mlir::ModuleOp"> {
  let summary = "Run a program of any phase in double precision and print a digest of its results";
  let description = [{
    Model, step, placed, local, scheduled and planned programs; as many simulated ranks as the mesh has. A planned program keeps its
    values in an arena per rank, so a value that is overwritten too early shows in the results. Parameters, states, tokens and
    hyper-parameters are drawn from their names, global indices and `seed`, so two programs of one model read the same. Changes
    nothing; prints one line per output and update to standard output (give pc-opt `-o /dev/null` to see nothing else):

    `gradient w: 11x6 max 1.234567890e-01 sum 2.345678901e+00 mix 3.456789012e-01`

    `max` is the largest absolute value, `mix` a sum with pseudo-random weights (it changes when elements are permuted). In a placed
    program every value on the way is put together from the ranks and compared with one device; the pass fails where they differ.

    Values of type bf16 are rounded to nearest even, inside of `pc.fusion` only what it yields; ranks and one device are then not
    compared. With `exact` nothing is rounded, and a wrong plan shows at 1e-9 in bf16, too.
  }];
  let options = [
    Option<"seed", "seed", "uint64_t", "1", "Of everything that the program reads">,
    Option<"print", "print", "std::string", "\"outputs\"", "outputs; values: also what every op computes; none">,
    Option<"exact", "exact", "bool", "false", "Do not round values of type bf16">,
  ];
}

def CheckGradients : Pass<"pc-check-gradients", "mlir::ModuleOp"> {
  let summary = "Compare the gradients of a step program with finite differences of its loss";
  let description = [{
    For every `pc.output gradient "w"` and `samples` elements of parameter w (all of them where it has no more): the output against
    (loss(w + epsilon) - loss(w - epsilon)) / (2 epsilon), where all of the program runs in the interpreter. Fails where they differ by
    more than `tolerance` times the largest element of that gradient. Changes nothing; prints one line per gradient.
  }];
  let options = [
    Option<"seed", "seed", "uint64_t", "1", "Of everything that the program reads">,
    Option<"epsilon", "epsilon", "double", "1e-4", "Perturbation of one element">,
    Option<"samples", "samples", "int64_t", "12", "Elements per parameter, spread evenly">,
    Option<"tolerance", "tolerance", "double", "1e-6", "Largest relative difference">,
  ];
}

#endif
