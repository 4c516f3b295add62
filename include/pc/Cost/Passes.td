//===- Passes.td - Passes of the Cost room ---------------------------------------===//
#ifndef PC_COST_PASSES_TD
#define PC_COST_PASSES_TD

include "mlir/Pass/PassBase.td"

def PrintReport : Pass<"pc-print-report", "mlir::ModuleOp"> {
  let summary = "Print the report of a planned program as JSON";
  let description = [{ What `pc-compile --report` writes (pc/Cost/Report.h), on standard output. The program stays as it is. }];
  let options = [Option<"plan", "plan", "std::string", "\"\"", "The plan's text, copied into the report">];
}

#endif
