// The constraints of the step phase, one case each.
// RUN: pc-opt %s --pc-verify-step -verify-diagnostics -split-input-file

func.func @step() {
  %x = pc.input tokens dims ["microbatch", "batch"] : tensor<2x4xi32>
  %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [8], start = [0], size = [8]> : tensor<8xf32>
  %loss, %dw = pc.accumulate (%m = %x : tensor<2x4xi32> -> tensor<4xi32>) {
    %l = pc.einsum "a, a ->" %w, %w : (tensor<8xf32>, tensor<8xf32>) -> tensor<f32>
    %one = pc.seed : tensor<f32>
    %d = pc.einsum ", a -> a" %one, %w : (tensor<f32>, tensor<8xf32>) -> tensor<8xf32>
    pc.yield %l, %d : tensor<f32>, tensor<8xf32>
  } : tensor<f32>, tensor<8xf32>
  pc.output loss "loss" %loss : tensor<f32>
  %v = pc.add %w, %dw : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  pc.update "w" %v : tensor<8xf32>
  return
}

// -----

// expected-error @below {{a step program must have exactly one function, @step (T1)}}
module {
  func.func @step() { return }
  func.func @model() { return }
}

// -----

// expected-error @below {{must have no arguments or results; inputs, parameters and updates are ops (T1)}}
func.func @step(%x: tensor<f32>) { return }

// -----

// expected-error @below {{must not be in a step program: it is for several devices, or belongs to a later phase (T2)}}
pc.mesh <dp = 2>
func.func @step() { return }

// -----

func.func @step() {
  // expected-error @below {{must not be in a step program: it is for several devices, or belongs to a later phase (T2)}}
  %c = pc.constant 1.0 : tensor<f32, #pc.home<0>>
  return
}

// -----

func.func @step() {
  // expected-error @below {{must be the only op of its kind, directly inside pc.accumulate (T3)}}
  %one = pc.seed : tensor<f32>
  return
}

// -----

// expected-error @below {{a step program needs a pc.accumulate over its microbatches (T3)}}
module {
  func.func @step() { return }
}

// -----

func.func @step() {
  %x = pc.input tokens dims ["microbatch", "batch"] : tensor<2x4xi32>
  %a = pc.accumulate (%m = %x : tensor<2x4xi32> -> tensor<4xi32>) {
    %l = pc.constant 1.0 : tensor<f32>
    pc.yield %l : tensor<f32>
  } : tensor<f32>
  // expected-error @below {{is the second one; a step program has only one (T3)}}
  %b = pc.accumulate (%m = %x : tensor<2x4xi32> -> tensor<4xi32>) {
    %l = pc.constant 1.0 : tensor<f32>
    pc.yield %l : tensor<f32>
  } : tensor<f32>
  return
}

// -----

// expected-error @below {{a step program must have exactly one output of kind loss, got 0 (T4)}}
module {
  func.func @step() {
    %x = pc.input tokens dims ["microbatch", "batch"] : tensor<2x4xi32>
    %a = pc.accumulate (%m = %x : tensor<2x4xi32> -> tensor<4xi32>) {
      %l = pc.constant 1.0 : tensor<f32>
      pc.yield %l : tensor<f32>
    } : tensor<f32>
    return
  }
}

// -----

func.func @step() {
  %x = pc.input targets dims ["microbatch", "batch"] : tensor<2x4xi32>
  %w = pc.parameter "w" dims ["batch", "v"] init <fill, 1.0> source <"w", shape = [4, 8], start = [0, 0], size = [4, 8]> : tensor<4x8xf32>
  %a = pc.accumulate (%m = %x : tensor<2x4xi32> -> tensor<4xi32>) {
    // expected-error @below {{belongs in model programs only; pc-differentiate expands it (T4)}}
    %e = pc.cross_entropy %w, %m : (tensor<4x8xf32>, tensor<4xi32>) -> tensor<4xf32>
    %l = pc.einsum "a ->" %e : (tensor<4xf32>) -> tensor<f32>
    pc.yield %l : tensor<f32>
  } : tensor<f32>
  return
}

// -----

func.func @step() {
  %c = pc.constant 1.0 : tensor<8xf32>
  // expected-error @below {{sets 'w', which is not a parameter or state of this program (T5)}}
  pc.update "w" %c : tensor<8xf32>
  return
}

// -----

func.func @step() {
  %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [8], start = [0], size = [8]> : tensor<8xf32>
  %c = pc.constant 1.0 : tensor<4xf32>
  // expected-error @below {{sets 'tensor<8xf32>' to a value of type 'tensor<4xf32>' (T5)}}
  pc.update "w" %c : tensor<4xf32>
  return
}

// -----

func.func @step() {
  %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [8], start = [0], size = [8]> : tensor<8xf32>
  pc.update "w" %w : tensor<8xf32>
  // expected-error @below {{sets 'w' a second time (T5)}}
  pc.update "w" %w : tensor<8xf32>
  return
}

// -----

func.func @step() {
  %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [8], start = [0], size = [8]> : tensor<8xf32>
  // expected-error @below {{is defined twice (T5)}}
  %v = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [8], start = [0], size = [8]> : tensor<8xf32>
  return
}

// -----

func.func @step() {
  %x = pc.input tokens dims ["microbatch", "batch"] : tensor<2x4xi32>
  // expected-error @below {{'w' is never updated (T5)}}
  %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [8], start = [0], size = [8]> : tensor<8xf32>
  %a = pc.accumulate (%m = %x : tensor<2x4xi32> -> tensor<4xi32>) {
    %one = pc.seed : tensor<f32>
    pc.yield %one : tensor<f32>
  } : tensor<f32>
  pc.output loss "loss" %a : tensor<f32>
  return
}

// -----

func.func @step() {
  %x = pc.input tokens dims ["microbatch", "batch"] : tensor<2x4xi32>
  %w = pc.parameter "w" dims ["a", "b"] init <fill, 1.0> source <"w", shape = [8, 4], start = [0, 0], size = [8, 4]> : tensor<8x4xf32>
  // expected-error @below {{'m' must have the shape of 'w', or some of its dims with their names and sizes, whole in the checkpoint; its type is 'tensor<4xf32>' (T5)}}
  %m = pc.state "m" of "w" dims ["a"] : tensor<4xf32>
  %loss = pc.accumulate (%t = %x : tensor<2x4xi32> -> tensor<4xi32>) {
    %one = pc.seed : tensor<f32>
    pc.yield %one : tensor<f32>
  } : tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  pc.update "w" %w : tensor<8x4xf32>
  pc.update "m" of "w" %m : tensor<4xf32>
  return
}

// -----

func.func @step() {
  // expected-error @below {{'w' is frozen and is updated (T5)}}
  %w = pc.parameter "w" frozen dims ["a"] init <fill, 1.0> source <"w", shape = [8], start = [0], size = [8]> : tensor<8xf32>
  %x = pc.input tokens dims ["microbatch", "batch"] : tensor<2x4xi32>
  %loss = pc.accumulate (%m = %x : tensor<2x4xi32> -> tensor<4xi32>) {
    %l = pc.einsum "a, a ->" %w, %w : (tensor<8xf32>, tensor<8xf32>) -> tensor<f32>
    pc.yield %l : tensor<f32>
  } : tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  pc.update "w" %w : tensor<8xf32>
  return
}

// -----

// The cache is updated with another value than the result of its write.
func.func @step() {
  %c = pc.state cache "keys" of "attention 0" dims ["batch", "slot", "kv_heads", "cached", "head_dim"] : tensor<1x1x1x4x4xf32>
  %x = pc.input data "x" dims ["batch", "s", "k", "d"] : tensor<1x2x1x4xf32>
  %i = pc.input data "i" below 2 dims ["batch", "s"] : tensor<1x2xi32>
  %y = pc.cache_write %x into %c at %i, %i : (tensor<1x1x1x4x4xf32>, tensor<1x2x1x4xf32>, tensor<1x2xi32>, tensor<1x2xi32>) -> tensor<1x1x1x4x4xf32>
  %z = pc.scale %y by 2.0 : (tensor<1x1x1x4x4xf32>) -> tensor<1x1x1x4x4xf32>
  // expected-error @below {{must update a cache with the result of pc.cache_write to it (T7)}}
  pc.update "keys" of "attention 0" %z : tensor<1x1x1x4x4xf32>
  return
}
