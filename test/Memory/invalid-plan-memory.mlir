// RUN: pc-opt %s --pc-plan-memory -verify-diagnostics -split-input-file

// expected-error @below {{expected exactly one function, the step, got 0}}
module {
}

// -----

// expected-error @below {{has arguments, which memory planning does not support}}
func.func @arguments(%x: tensor<4xf32>) {
  return
}

// -----

pc.mesh <tp = 2>
func.func @placed() {
  // expected-error @below {{memory planning needs a local program; run pc-localize first}}
  %c = pc.constant 1.0 : tensor<f32, #pc.place<[]>>
  return
}

// -----

func.func @nested() {
  %x = pc.input tokens dims ["microbatch", "batch"] global [2, 4] layout <[_, _]> : tensor<2x4xi32>
  pc.accumulate (%t = %x : tensor<2x4xi32> -> tensor<4xi32>) {
    // expected-error @below {{is nested in another accumulation}}
    pc.accumulate (%u = %t : tensor<4xi32> -> tensor<i32>) {
      pc.yield
    }
    pc.yield
  }
  return
}
