// RUN: pc-opt %s --split-input-file --pc-plan-memory --pc-verify-memory | FileCheck %s

// Leaves first: w at 0 (32 x 4 = 128 bytes), its states at 128 and 256, hyper (36 bytes, 64 with alignment) at 384, the constant
// (4, 64) at 448. Then the gradient of 128 bytes: 512 + 128 = 640. The new values lie over the old ones.
// CHECK: pc.arena 640
// CHECK-LABEL: func.func @update_in_place
func.func @update_in_place() {
  // CHECK: pc.parameter "w" {{.*}} : tensor<32xf32, #pc.home<0>>
  %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [32], start = [0], size = [32]> global [32] layout <[_]> : tensor<32xf32>
  // CHECK: pc.input hyper {{.*}} : tensor<9xf32, #pc.home<384>>
  %hyper = pc.input hyper dims ["hyper"] global [9] layout <[_]> : tensor<9xf32>
  // CHECK: pc.constant 1.000000e+00 : tensor<f32, #pc.home<448>>
  %c = pc.constant 1.0 : tensor<f32>
  // CHECK: pc.state "m" {{.*}} : tensor<32xf32, #pc.home<128>>
  %m = pc.state "m" of "w" dims ["a"] global [32] layout <[_]> : tensor<32xf32>
  // CHECK: pc.state "v" {{.*}} : tensor<32xf32, #pc.home<256>>
  %v = pc.state "v" of "w" dims ["a"] global [32] layout <[_]> : tensor<32xf32>
  %g = pc.scale %w by 2.0 : (tensor<32xf32>) -> tensor<32xf32>
  // CHECK: pc.adamw {{.*}} -> (tensor<32xf32, #pc.home<0>>, tensor<32xf32, #pc.home<128>>, tensor<32xf32, #pc.home<256>>)
  %nw, %nm, %nv = pc.adamw %w, %g, %m, %v, %c, %hyper : (tensor<32xf32>, tensor<32xf32>, tensor<32xf32>, tensor<32xf32>, tensor<f32>, tensor<9xf32>) -> (tensor<32xf32>, tensor<32xf32>, tensor<32xf32>)
  pc.update "w" %nw : tensor<32xf32>
  pc.update "m" of "w" %nm : tensor<32xf32>
  pc.update "v" of "w" %nv : tensor<32xf32>
  return
}

// -----

// Something reads the old value after the new one is made: the new one has a home of its own, and the update moves after the reader.
// CHECK-LABEL: func.func @update_copies
func.func @update_copies() {
  // CHECK: %[[W:.*]] = pc.parameter "w" {{.*}} : tensor<32xf32, #pc.home<0>>
  %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [32], start = [0], size = [32]> global [32] layout <[_]> : tensor<32xf32>
  // CHECK: %[[N:.*]] = pc.scale %[[W]] {{.*}} -> tensor<32xf32, #pc.home<128>>
  %n = pc.scale %w by 2.0 : (tensor<32xf32>) -> tensor<32xf32>
  pc.update "w" %n : tensor<32xf32>
  // CHECK-NEXT: pc.output gradient "w" %[[W]]
  pc.output gradient "w" %w global [32] layout <[_]> : tensor<32xf32>
  // CHECK-NEXT: pc.update "w" %[[N]]
  // CHECK-NEXT: return
  return
}

// -----

// One microbatch: the body yields straight into the result; pointwise ops work in place. w 0, x 128 (1 x 32 x 4), then all of
// a, b, c (one buffer, 256), which becomes the result and is read by the output.
// CHECK: pc.arena 384
// CHECK-LABEL: func.func @one_microbatch
func.func @one_microbatch() {
  %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [32], start = [0], size = [32]> global [32] layout <[_]> : tensor<32xf32>
  // CHECK: pc.input tokens {{.*}} : tensor<1x32xi32, #pc.home<128>>
  %x = pc.input tokens dims ["microbatch", "a"] global [1, 32] layout <[_, _]> : tensor<1x32xi32>
  // CHECK: pc.accumulate (%{{.*}} = %{{.*}} : tensor<1x32xi32, #pc.home<128>> -> tensor<32xi32, #pc.home<128>>)
  %r = pc.accumulate (%t = %x : tensor<1x32xi32> -> tensor<32xi32>) {
    // CHECK: pc.cast {{.*}} -> tensor<32xf32, #pc.home<256>>
    %a = pc.cast %t : (tensor<32xi32>) -> tensor<32xf32>
    // CHECK: pc.add {{.*}} -> tensor<32xf32, #pc.home<256>>
    %b = pc.add %a, %w : (tensor<32xf32>, tensor<32xf32>) -> tensor<32xf32>
    // CHECK: pc.activation {{.*}} -> tensor<32xf32, #pc.home<256>>
    %c = pc.activation relu %b : (tensor<32xf32>) -> tensor<32xf32>
    pc.yield %c : tensor<32xf32>
  // CHECK: } : tensor<32xf32, #pc.home<256>>
  } : tensor<32xf32>
  pc.output gradient "w" %r global [32] layout <[_]> : tensor<32xf32>
  return
}

// -----

// Two microbatches: the sum (128 bytes) lives through the body, beside what the body yields, and what the body uses from outside lives
// to its end. w 0; x 128 (2 x 32 x 4 = 256); then sum, h and a: 384 + 3 x 128 = 768.
// CHECK: pc.arena 768
// CHECK-LABEL: func.func @two_microbatches
func.func @two_microbatches() {
  %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [32], start = [0], size = [32]> global [32] layout <[_]> : tensor<32xf32>
  %x = pc.input tokens dims ["microbatch", "a"] global [2, 32] layout <[_, _]> : tensor<2x32xi32>
  // CHECK: pc.scale {{.*}} -> tensor<32xf32, #pc.home<[[H:.*]]>>
  %h = pc.scale %w by 2.0 : (tensor<32xf32>) -> tensor<32xf32>
  // The element of the stack: its home is that of microbatch 0.
  // CHECK: pc.accumulate (%{{.*}} = %{{.*}} : tensor<2x32xi32, #pc.home<128>> -> tensor<32xi32, #pc.home<128>>)
  %r = pc.accumulate (%t = %x : tensor<2x32xi32> -> tensor<32xi32>) {
    // CHECK: pc.cast {{.*}} -> tensor<32xf32, #pc.home<[[A:.*]]>>
    %a = pc.cast %t : (tensor<32xi32>) -> tensor<32xf32>
    // Never over %h, although this is its last reader in the text.
    // CHECK: pc.add {{.*}} -> tensor<32xf32, #pc.home<[[A]]>>
    %b = pc.add %h, %a : (tensor<32xf32>, tensor<32xf32>) -> tensor<32xf32>
    pc.yield %b : tensor<32xf32>
  } : tensor<32xf32>
  pc.output gradient "w" %r global [32] layout <[_]> : tensor<32xf32>
  return
}

// -----

// Two microbatches, two sums: each takes its addend as soon as that is there, so that the second addend lies where the first was.
// w 0, x 128 (2 x 32 x 4 = 256), two sums and one addend: 384 + 3 x 128 = 768.
// CHECK: pc.arena 768
// CHECK-LABEL: func.func @sums_at_once
func.func @sums_at_once() {
  %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [32], start = [0], size = [32]> global [32] layout <[_]> : tensor<32xf32>
  %x = pc.input tokens dims ["microbatch", "a"] global [2, 32] layout <[_, _]> : tensor<2x32xi32>
  %r:2 = pc.accumulate (%t = %x : tensor<2x32xi32> -> tensor<32xi32>) {
    // CHECK: pc.cast {{.*}} -> tensor<32xf32, #pc.home<[[A:.*]]>>
    %a = pc.cast %t : (tensor<32xi32>) -> tensor<32xf32>
    // CHECK: pc.scale {{.*}} -> tensor<32xf32, #pc.home<[[A]]>>
    %b = pc.scale %w by 2.0 : (tensor<32xf32>) -> tensor<32xf32>
    pc.yield %a, %b : tensor<32xf32>, tensor<32xf32>
  } : tensor<32xf32>, tensor<32xf32>
  pc.output gradient "a" %r#0 global [32] layout <[_]> : tensor<32xf32>
  pc.output gradient "b" %r#1 global [32] layout <[_]> : tensor<32xf32>
  return
}

// -----

// Bytes are used again: x 0 (64 x 4 = 256); a 256 until the sum at 512 (4 bytes, 64) is made of it; b lies where a was.
// CHECK: pc.arena 576
// CHECK-LABEL: func.func @reuse
func.func @reuse() {
  %x = pc.parameter "x" dims ["a"] init <fill, 1.0> source <"x", shape = [64], start = [0], size = [64]> global [64] layout <[_]> : tensor<64xf32>
  // CHECK: pc.scale {{.*}} -> tensor<64xf32, #pc.home<256>>
  %a = pc.scale %x by 2.0 : (tensor<64xf32>) -> tensor<64xf32>
  // CHECK: pc.einsum "a, a ->" {{.*}} -> tensor<f32, #pc.home<512>>
  %s = pc.einsum "a, a ->" %a, %a : (tensor<64xf32>, tensor<64xf32>) -> tensor<f32>
  // CHECK: pc.einsum "a, -> a" {{.*}} -> tensor<64xf32, #pc.home<256>>
  %b = pc.einsum "a, -> a" %x, %s : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  pc.output gradient "x" %b global [64] layout <[_]> : tensor<64xf32>
  return
}

// -----

// Kernels: values inside have no home. The operand that is read element by element dies and is overwritten; a row that is
// broadcast, or an operand of a kernel that sums, is not.
// CHECK-LABEL: func.func @kernels
func.func @kernels() {
  %x = pc.parameter "x" dims ["a", "b"] init <fill, 1.0> source <"x", shape = [2, 32], start = [0, 0], size = [2, 32]> global [2, 32] layout <[_, _]> : tensor<2x32xf32>
  %row = pc.parameter "row" dims ["b"] init <fill, 1.0> source <"row", shape = [32], start = [0], size = [32]> global [32] layout <[_]> : tensor<32xf32>
  // CHECK: pc.scale {{.*}} -> tensor<2x32xf32, #pc.home<[[A:.*]]>>
  %a = pc.scale %x by 2.0 : (tensor<2x32xf32>) -> tensor<2x32xf32>
  // CHECK: %[[F:.*]] = pc.fusion
  %f = pc.fusion (%p = %a : tensor<2x32xf32> -> tensor<2x32xf32>, %q = %row : tensor<32xf32> -> tensor<32xf32>) {
    // CHECK: pc.einsum {{.*}} -> tensor<2x32xf32>
    %m = pc.einsum "a b, b -> a b" %p, %q : (tensor<2x32xf32>, tensor<32xf32>) -> tensor<2x32xf32>
    %r = pc.activation relu %m : (tensor<2x32xf32>) -> tensor<2x32xf32>
    pc.yield %r : tensor<2x32xf32>
  // CHECK: } : tensor<2x32xf32, #pc.home<[[A]]>>
  } : tensor<2x32xf32>
  // A row norm inside: one row needs all of itself.
  // CHECK: pc.fusion (%{{.*}} = %[[F]] : tensor<2x32xf32, #pc.home<[[A]]>>
  %n = pc.fusion (%p = %f : tensor<2x32xf32> -> tensor<2x32xf32>) {
    %s = pc.einsum "a b, a b -> a" %p, %p : (tensor<2x32xf32>, tensor<2x32xf32>) -> tensor<2xf32>
    %m = pc.einsum "a b, a -> a b" %p, %s : (tensor<2x32xf32>, tensor<2xf32>) -> tensor<2x32xf32>
    pc.yield %m : tensor<2x32xf32>
  // CHECK-NOT: } : tensor<2x32xf32, #pc.home<[[A]]>>
  // CHECK: } : tensor<2x32xf32, #pc.home<
  } : tensor<2x32xf32>
  pc.output gradient "x" %n global [2, 32] layout <[_, _]> : tensor<2x32xf32>
  return
}

// -----

// A product that broadcasts may become a library call (k = 1), which does not promise to work in place; in a kernel it is one loop.
// CHECK-LABEL: func.func @broadcast
func.func @broadcast() {
  %x = pc.parameter "x" dims ["a", "b"] init <fill, 1.0> source <"x", shape = [2, 32], start = [0, 0], size = [2, 32]> global [2, 32] layout <[_, _]> : tensor<2x32xf32>
  %row = pc.parameter "row" dims ["b"] init <fill, 1.0> source <"row", shape = [32], start = [0], size = [32]> global [32] layout <[_]> : tensor<32xf32>
  // CHECK: pc.scale {{.*}} -> tensor<2x32xf32, #pc.home<[[A:.*]]>>
  %a = pc.scale %x by 2.0 : (tensor<2x32xf32>) -> tensor<2x32xf32>
  // CHECK-NOT: pc.einsum {{.*}} -> tensor<2x32xf32, #pc.home<[[A]]>>
  // CHECK: pc.einsum {{.*}} -> tensor<2x32xf32, #pc.home<[[B:.*]]>>
  %b = pc.einsum "a b, b -> a b" %a, %row : (tensor<2x32xf32>, tensor<32xf32>) -> tensor<2x32xf32>
  // An elementwise product is no library call.
  // CHECK: pc.einsum {{.*}} -> tensor<2x32xf32, #pc.home<[[B]]>>
  %c = pc.einsum "a b, a b -> a b" %b, %x : (tensor<2x32xf32>, tensor<2x32xf32>) -> tensor<2x32xf32>
  pc.output gradient "x" %c global [2, 32] layout <[_, _]> : tensor<2x32xf32>
  return
}

// -----

// A microbatch is a view: element 1 lies 16 bytes after the stack of two, and has no bytes of its own: the stack (32, 64 with
// alignment) and what is computed from both (16 each, 64 with alignment; both are needed by the sum, which lies over the first).
// CHECK: pc.arena 192
// CHECK-LABEL: func.func @microbatch
func.func @microbatch() {
  // CHECK: pc.input {{.*}} : tensor<2x4xf32, #pc.home<0>>
  %t = pc.input hyper dims ["microbatch", "batch"] global [2, 4] layout <[_, _]> : tensor<2x4xf32>
  pc.task forward chunk 0 microbatch 0
  // CHECK: pc.microbatch {{.*}} -> tensor<4xf32, #pc.home<0>>
  %0 = pc.microbatch %t[0] : tensor<2x4xf32> -> tensor<4xf32>
  %a = pc.scale %0 by 2.0 : (tensor<4xf32>) -> tensor<4xf32>
  pc.task forward chunk 0 microbatch 1
  // CHECK: pc.microbatch {{.*}} -> tensor<4xf32, #pc.home<16>>
  %1 = pc.microbatch %t[1] : tensor<2x4xf32> -> tensor<4xf32>
  %b = pc.scale %1 by 2.0 : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: pc.add {{.*}} -> tensor<4xf32, #pc.home<64>>
  %s = pc.add %a, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  pc.output gradient "x" %s global [4] layout <[_]> : tensor<4xf32>
  return
}
