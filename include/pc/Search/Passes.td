//===- Passes.td - Passes of the Search room ---------------------------------------===//
#ifndef PC_SEARCH_PASSES_TD
#define PC_SEARCH_PASSES_TD

include "mlir/Pass/PassBase.td"

def AutoParallel : Pass<"pc-auto-parallel", "mlir::ModuleOp"> {
  let summary = "Search the plan of a model and carry it out up to a phase";
  let description = [{
    Model program -> program of the phase `to`, with the plan that `pc-compile --auto` finds for the same flags, in its attribute `pc.plan`. What was
    searched is said on standard error. Fails where no plan is legal or fits.

    Example: `--pc-auto-parallel="flags='ranks=4 zero=1 memory-limit=8G'"`.
  }];
  let dependentDialects = ["pc::PCDialect"];
  let options = [
    Option<"flags", "flags", "std::string", "\"\"", "Flags of pc-compile, without --; those of strategies are pins">,
    Option<"to", "to", "std::string", "\"placed\"", "step, placed, staged, local, scheduled or planned">,
  ];
}

#endif
