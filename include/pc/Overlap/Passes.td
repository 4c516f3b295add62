//===- Passes.td - Passes of the Overlap room ---------------------------------------===//
#ifndef PC_OVERLAP_PASSES_TD
#define PC_OVERLAP_PASSES_TD

include "mlir/Pass/PassBase.td"

def Schedule : Pass<"pc-schedule", "mlir::ModuleOp"> {
  let summary = "Local program -> scheduled program: the order in which moves are issued";
  let description = [{
    Changes nothing yet: moves are issued where they stand and block. That is one issue order per communicator, because all ranks run
    the same text; the pass checks what this rests on: (S1) every block of the program is a straight line (a function body, or the
    body of `pc.accumulate`, which all ranks repeat equally often), and no move stands in a kernel (`pc.fusion`).

    Here collectives will be split into start and wait, bucketed and hoisted.
  }];
}

#endif
