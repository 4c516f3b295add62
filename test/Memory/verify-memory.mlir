// RUN: pc-opt %s --pc-verify-memory -verify-diagnostics -split-input-file

// expected-error @below {{one function of one block, and one pc.arena (A1)}}
module {
  func.func @no_arena() {
    return
  }
}

// -----

pc.arena 64
func.func @no_home() {
  // expected-error @below {{has a value without an arena offset: 'tensor<f32>' (A1)}}
  %c = pc.constant 1.0 : tensor<f32>
  return
}

// -----

pc.arena 64
func.func @outside() {
  // expected-error @below {{outside the arena of 64 bytes}}
  %c = pc.constant 1.0 : tensor<f32, #pc.home<64>>
  return
}

// -----

pc.arena 64
func.func @leaves_overlap() {
  %c = pc.constant 1.0 : tensor<f32, #pc.home<0>>
  // expected-error @below {{overlaps another input, parameter or state (A3)}}
  %d = pc.constant 2.0 : tensor<f32, #pc.home<0>>
  return
}

// -----

pc.arena 192
func.func @overwritten() {
  %c = pc.constant 1.0 : tensor<f32, #pc.home<0>>
  %a = pc.scale %c by 2.0 : (tensor<f32, #pc.home<0>>) -> tensor<f32, #pc.home<64>>
  // expected-error @below {{over a value that is still needed (A3)}}
  %b = pc.scale %c by 3.0 : (tensor<f32, #pc.home<0>>) -> tensor<f32, #pc.home<64>>
  %d = pc.add %a, %b : (tensor<f32, #pc.home<64>>, tensor<f32, #pc.home<64>>) -> tensor<f32, #pc.home<128>>
  return
}

// -----

// The result overlaps the operand at another offset.
pc.arena 512
func.func @half_in_place() {
  %c = pc.constant 1.0 : tensor<f32, #pc.home<0>>
  %a = pc.einsum "-> a" %c : (tensor<f32, #pc.home<0>>) -> tensor<32xf32, #pc.home<128>>
  // expected-error @below {{over a value that is still needed (A3)}}
  %b = pc.scale %a by 3.0 : (tensor<32xf32, #pc.home<128>>) -> tensor<32xf32, #pc.home<192>>
  return
}

// -----

// A sum cannot overwrite its operand.
pc.arena 128
func.func @sum_in_place() {
  %w = pc.parameter "w" dims ["b", "c"] init <fill, 1.0> source <"w", shape = [4, 4], start = [0, 0], size = [4, 4]> global [4, 4] layout <[_, _]> : tensor<4x4xf32, #pc.home<0>>
  %a = pc.einsum "b c -> b" %w : (tensor<4x4xf32, #pc.home<0>>) -> tensor<4xf32, #pc.home<64>>
  // expected-error @below {{over a value that is still needed (A3)}}
  %b = pc.einsum "b, b c -> c" %a, %w : (tensor<4xf32, #pc.home<64>>, tensor<4x4xf32, #pc.home<0>>) -> tensor<4xf32, #pc.home<64>>
  return
}

// -----

// Two results of one op overlap.
pc.arena 256
func.func @two_results() {
  %c = pc.constant 1.0 : tensor<f32, #pc.home<0>>
  %x = pc.einsum "-> a" %c : (tensor<f32, #pc.home<0>>) -> tensor<4xf32, #pc.home<64>>
  // expected-error @below {{writes result 1 at 128 over a value that is still needed (A3)}}
  %y, %r = pc.rms_norm %x, %x eps 1.0e-05 : (tensor<4xf32, #pc.home<64>>, tensor<4xf32, #pc.home<64>>) -> (tensor<4xf32, #pc.home<128>>, tensor<f32, #pc.home<128>>)
  return
}

// -----

pc.arena 256
func.func @overwrites_leaf() {
  %c = pc.constant 1.0 : tensor<f32, #pc.home<0>>
  // expected-error @below {{over a value that is still needed (A3)}}
  %a = pc.scale %c by 2.0 : (tensor<f32, #pc.home<0>>) -> tensor<f32, #pc.home<0>>
  return
}

// -----

// The next microbatch reads %h again, so nothing may overwrite it.
pc.arena 1024
func.func @captured() {
  %x = pc.input tokens dims ["microbatch"] global [2] layout <[_]> : tensor<2xi32, #pc.home<0>>
  %c = pc.constant 1.0 : tensor<f32, #pc.home<64>>
  %h = pc.scale %c by 2.0 : (tensor<f32, #pc.home<64>>) -> tensor<f32, #pc.home<128>>
  %r = pc.accumulate (%t = %x : tensor<2xi32, #pc.home<0>> -> tensor<i32, #pc.home<0>>) {
    // expected-error @below {{over a value that is still needed (A3)}}
    %a = pc.scale %h by 2.0 : (tensor<f32, #pc.home<128>>) -> tensor<f32, #pc.home<128>>
    pc.yield %a : tensor<f32, #pc.home<128>>
  } : tensor<f32, #pc.home<192>>
  return
}

// -----

// With two microbatches, the sum may not overlap an addend.
pc.arena 1024
func.func @sum_over_addend() {
  %x = pc.input tokens dims ["microbatch"] global [2] layout <[_]> : tensor<2xi32, #pc.home<0>>
  %r = pc.accumulate (%t = %x : tensor<2xi32, #pc.home<0>> -> tensor<i32, #pc.home<0>>) {
    // expected-error @below {{over a value that is still needed (A3)}}
    %a = pc.cast %t : (tensor<i32, #pc.home<0>>) -> tensor<f32, #pc.home<128>>
    pc.yield %a : tensor<f32, #pc.home<128>>
  } : tensor<f32, #pc.home<128>>
  pc.output loss "loss" %r global [] layout <[]> : tensor<f32, #pc.home<128>>
  return
}

// -----

pc.arena 1024
func.func @stack_elsewhere() {
  %x = pc.input tokens dims ["microbatch"] global [2] layout <[_]> : tensor<2xi32, #pc.home<0>>
  // expected-error @below {{has a block argument that is not at the offset of its operand (A2)}}
  pc.accumulate (%t = %x : tensor<2xi32, #pc.home<0>> -> tensor<i32, #pc.home<64>>) {
    pc.yield
  }
  return
}

// -----

pc.arena 1024
func.func @update_too_early() {
  %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [4], start = [0], size = [4]> global [4] layout <[_]> : tensor<4xf32, #pc.home<0>>
  %a = pc.scale %w by 2.0 : (tensor<4xf32, #pc.home<0>>) -> tensor<4xf32, #pc.home<64>>
  // expected-error @below {{copies over 'w', whose old value is read later (A4)}}
  pc.update "w" %a : tensor<4xf32, #pc.home<64>>
  pc.output gradient "w" %w global [4] layout <[_]> : tensor<4xf32, #pc.home<0>>
  return
}

// -----

pc.arena 128
func.func @microbatch_elsewhere() {
  %t = pc.input hyper dims ["microbatch", "batch"] global [2, 4] layout <[_, _]> : tensor<2x4xf32, #pc.home<0>>
  // expected-error @below {{is not inside its stack, which must be in the arena (A6)}}
  %1 = pc.microbatch %t[1] : tensor<2x4xf32, #pc.home<0>> -> tensor<4xf32, #pc.home<64>>
  return
}

// -----

pc.arena 1024
func.func private @task(%x: tensor<4xf32, #pc.home<64>>) -> tensor<4xf32, #pc.home<128>> {
  // expected-error @below {{writes result 0 at 64 over a value that is still needed (A3)}}
  %a = pc.scale %x by 2.0 : (tensor<4xf32, #pc.home<64>>) -> tensor<4xf32, #pc.home<64>>
  %b = pc.scale %a by 2.0 : (tensor<4xf32, #pc.home<64>>) -> tensor<4xf32, #pc.home<128>>
  return %b : tensor<4xf32, #pc.home<128>>
}
func.func @step() {
  %x = pc.input hyper dims ["n"] global [4] layout <[_]> : tensor<4xf32, #pc.home<0>>
  %y = pc.call @task(%x) frame 512 : (tensor<4xf32, #pc.home<0>>) -> tensor<4xf32, #pc.home<256>>
  pc.output loss "loss" %y global [4] layout <[_]> : tensor<4xf32, #pc.home<256>>
  return
}

// -----

pc.arena 1024
func.func private @task(%x: tensor<4xf32, #pc.home<64>>) -> tensor<4xf32, #pc.home<128>> {
  // expected-error @below {{has a value outside the frame of 64 bytes (A7)}}
  %a = pc.scale %x by 2.0 : (tensor<4xf32, #pc.home<64>>) -> tensor<4xf32, #pc.home<192>>
  %b = pc.scale %a by 2.0 : (tensor<4xf32, #pc.home<192>>) -> tensor<4xf32, #pc.home<128>>
  return %b : tensor<4xf32, #pc.home<128>>
}
func.func @step() {
  %x = pc.input hyper dims ["n"] global [4] layout <[_]> : tensor<4xf32, #pc.home<0>>
  %y = pc.call @task(%x) frame 512 : (tensor<4xf32, #pc.home<0>>) -> tensor<4xf32, #pc.home<256>>
  pc.output loss "loss" %y global [4] layout <[_]> : tensor<4xf32, #pc.home<256>>
  return
}

// -----

pc.arena 1024
func.func private @task(%x: tensor<4xf32, #pc.home<64>>) -> tensor<4xf32, #pc.home<128>> {
  %a = pc.scale %x by 2.0 : (tensor<4xf32, #pc.home<64>>) -> tensor<4xf32, #pc.home<0>>
  %b = pc.scale %a by 2.0 : (tensor<4xf32, #pc.home<0>>) -> tensor<4xf32, #pc.home<128>>
  return %b : tensor<4xf32, #pc.home<128>>
}
func.func @step() {
  %x = pc.input hyper dims ["n"] global [4] layout <[_]> : tensor<4xf32, #pc.home<0>>
  // expected-error @below {{has a frame at 0 that overlaps a value that is still needed (A7)}}
  %y = pc.call @task(%x) frame 0 : (tensor<4xf32, #pc.home<0>>) -> tensor<4xf32, #pc.home<256>>
  pc.output loss "loss" %y global [4] layout <[_]> : tensor<4xf32, #pc.home<256>>
  return
}

// -----

pc.arena 1024
func.func private @task(%x: tensor<4xf32, #pc.home<64>>) -> tensor<4xf32, #pc.home<128>> {
  %a = pc.scale %x by 2.0 : (tensor<4xf32, #pc.home<64>>) -> tensor<4xf32, #pc.home<0>>
  %b = pc.scale %a by 2.0 : (tensor<4xf32, #pc.home<0>>) -> tensor<4xf32, #pc.home<128>>
  return %b : tensor<4xf32, #pc.home<128>>
}
func.func @step() {
  %x = pc.input hyper dims ["n"] global [4] layout <[_]> : tensor<4xf32, #pc.home<0>>
  // expected-error @below {{has a frame at 256 that overlaps a value that is still needed (A7)}}
  %y = pc.call @task(%x) frame 256 : (tensor<4xf32, #pc.home<0>>) -> tensor<4xf32, #pc.home<256>>
  pc.output loss "loss" %y global [4] layout <[_]> : tensor<4xf32, #pc.home<256>>
  return
}

// -----

pc.arena 1024
func.func private @task(%x: tensor<4xf32, #pc.home<0>>) -> tensor<4xf32, #pc.home<0>> {
  %a = pc.scale %x by 2.0 : (tensor<4xf32, #pc.home<0>>) -> tensor<4xf32, #pc.home<0>>
  return %a : tensor<4xf32, #pc.home<0>>
}
func.func @step() {
  %x = pc.input hyper dims ["n"] global [4] layout <[_]> : tensor<4xf32, #pc.home<0>>
  %a = pc.scale %x by 2.0 : (tensor<4xf32, #pc.home<0>>) -> tensor<4xf32, #pc.home<128>>
  // expected-error @below {{has a result that is not at the offset of the operand that it overwrites (A7)}}
  %y = pc.call @task(%a) frame 512 : (tensor<4xf32, #pc.home<128>>) -> tensor<4xf32, #pc.home<256>>
  return
}

// -----

pc.arena 1024
func.func private @task(%x: tensor<4xf32, #pc.home<0>>) -> tensor<4xf32, #pc.home<0>> {
  %a = pc.scale %x by 2.0 : (tensor<4xf32, #pc.home<0>>) -> tensor<4xf32, #pc.home<0>>
  return %a : tensor<4xf32, #pc.home<0>>
}
func.func @step() {
  %x = pc.input hyper dims ["n"] global [4] layout <[_]> : tensor<4xf32, #pc.home<0>>
  %a = pc.scale %x by 2.0 : (tensor<4xf32, #pc.home<0>>) -> tensor<4xf32, #pc.home<128>>
  // expected-error @below {{writes result 0 at 128 over a value that is still needed (A3)}}
  %y = pc.call @task(%a) frame 512 : (tensor<4xf32, #pc.home<128>>) -> tensor<4xf32, #pc.home<128>>
  pc.output loss "loss" %a global [4] layout <[_]> : tensor<4xf32, #pc.home<128>>
  return
}

// -----

// A cache must be written in place, because the kernel writes only the rows of its tokens.
pc.arena 1024
func.func @step() {
  %c = pc.state cache "keys" of "attention 0" dims ["batch", "slot", "kv_heads", "cached", "head_dim"] global [1, 1, 1, 4, 4] layout <[_, _, _, _, _]> : tensor<1x1x1x4x4xf32, #pc.home<0>>
  %x = pc.input data "x" dims ["batch", "s", "k", "d"] global [1, 2, 1, 4] layout <[_, _, _, _]> : tensor<1x2x1x4xf32, #pc.home<64>>
  %i = pc.input data "i" below 2 dims ["batch", "s"] global [1, 2] layout <[_, _]> : tensor<1x2xi32, #pc.home<128>>
  // expected-error @below {{must write into its cache, but the result has a home of its own (A3)}}
  %y = pc.cache_write %x into %c at %i, %i : (tensor<1x1x1x4x4xf32, #pc.home<0>>, tensor<1x2x1x4xf32, #pc.home<64>>, tensor<1x2xi32, #pc.home<128>>, tensor<1x2xi32, #pc.home<128>>) -> tensor<1x1x1x4x4xf32, #pc.home<256>>
  pc.update "keys" of "attention 0" %y : tensor<1x1x1x4x4xf32, #pc.home<256>>
  return
}

// -----

// The old contents are read after they are overwritten.
pc.arena 1024
func.func @step() {
  %c = pc.state cache "keys" of "attention 0" dims ["batch", "slot", "kv_heads", "cached", "head_dim"] global [1, 1, 1, 4, 4] layout <[_, _, _, _, _]> : tensor<1x1x1x4x4xf32, #pc.home<0>>
  %x = pc.input data "x" dims ["batch", "s", "k", "d"] global [1, 2, 1, 4] layout <[_, _, _, _]> : tensor<1x2x1x4xf32, #pc.home<64>>
  %i = pc.input data "i" below 2 dims ["batch", "s"] global [1, 2] layout <[_, _]> : tensor<1x2xi32, #pc.home<128>>
  // expected-error @below {{writes result 0 at 0 over a value that is still needed (A3)}}
  %y = pc.cache_write %x into %c at %i, %i : (tensor<1x1x1x4x4xf32, #pc.home<0>>, tensor<1x2x1x4xf32, #pc.home<64>>, tensor<1x2xi32, #pc.home<128>>, tensor<1x2xi32, #pc.home<128>>) -> tensor<1x1x1x4x4xf32, #pc.home<0>>
  pc.update "keys" of "attention 0" %y : tensor<1x1x1x4x4xf32, #pc.home<0>>
  %z = pc.scale %c by 2.0 : (tensor<1x1x1x4x4xf32, #pc.home<0>>) -> tensor<1x1x1x4x4xf32, #pc.home<256>>
  pc.output logits "z" %z global [1, 1, 1, 4, 4] layout <[_, _, _, _, _]> : tensor<1x1x1x4x4xf32, #pc.home<256>>
  return
}
