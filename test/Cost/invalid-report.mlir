// RUN: pc-opt %s --pc-print-report -verify-diagnostics

// expected-error @below {{a report needs a planned program: one function and one pc.arena (pc-plan-memory)}}
module {
  func.func @step() {
    return
  }
}
