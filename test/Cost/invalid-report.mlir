// RUN: pc-opt %s --pc-print-report -verify-diagnostics

// expected-error @below {{a report needs a planned program, with one function and one pc.arena; run pc-plan-memory first}}
module {
  func.func @step() {
    return
  }
}
