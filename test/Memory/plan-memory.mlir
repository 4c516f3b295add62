// RUN: pc-opt %s --split-input-file --pc-plan-memory --pc-verify-memory | FileCheck %s

// Leaves come first: w at 0 (32 x 4 = 128 bytes), its states at 128 and 256, hyper (36 bytes, 64 with alignment) at
// 384, the constant (4, 64) at 448. The gradient of 128 bytes follows: 512 + 128 = 640. New values overwrite the old
// ones.
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

// An op reads the old value after the new one is computed. So the new value has its own home, and the update moves
// after that op.
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

// With one microbatch, the body writes directly to the result, and pointwise ops work in place. w is at 0 and x at 128
// (1 x 32 x 4). a, b and c share one buffer at 256, which becomes the result and is read by the output.
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

// With two microbatches, the sum (128 bytes) and the yielded value are both live in the body, and outer values that the
// body uses are live to its end. w is at 0 and x at 128 (2 x 32 x 4 = 256). sum, h and a follow: 384 + 3 x 128 = 768.
// CHECK: pc.arena 768
// CHECK-LABEL: func.func @two_microbatches
func.func @two_microbatches() {
  %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [32], start = [0], size = [32]> global [32] layout <[_]> : tensor<32xf32>
  %x = pc.input tokens dims ["microbatch", "a"] global [2, 32] layout <[_, _]> : tensor<2x32xi32>
  // CHECK: pc.scale {{.*}} -> tensor<32xf32, #pc.home<[[H:.*]]>>
  %h = pc.scale %w by 2.0 : (tensor<32xf32>) -> tensor<32xf32>
  // An element of the stack has the home of microbatch 0.
  // CHECK: pc.accumulate (%{{.*}} = %{{.*}} : tensor<2x32xi32, #pc.home<128>> -> tensor<32xi32, #pc.home<128>>)
  %r = pc.accumulate (%t = %x : tensor<2x32xi32> -> tensor<32xi32>) {
    // CHECK: pc.cast {{.*}} -> tensor<32xf32, #pc.home<[[A:.*]]>>
    %a = pc.cast %t : (tensor<32xi32>) -> tensor<32xf32>
    // The result is never over %h, although this op is its last reader in the text.
    // CHECK: pc.add {{.*}} -> tensor<32xf32, #pc.home<[[A]]>>
    %b = pc.add %h, %a : (tensor<32xf32>, tensor<32xf32>) -> tensor<32xf32>
    pc.yield %b : tensor<32xf32>
  } : tensor<32xf32>
  pc.output gradient "w" %r global [32] layout <[_]> : tensor<32xf32>
  return
}

// -----

// With two microbatches there are two sums. Each adds its addend as soon as that is computed, so the second addend has
// the home of the first. w is at 0 and x at 128 (2 x 32 x 4 = 256). Two sums and one addend follow: 384 + 3 x 128 =
// 768.
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

// Bytes are used again. x is at 0 (64 x 4 = 256). a is at 256 until the sum at 512 (4 bytes, 64) is computed from it,
// and then b takes the place of a.
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

// Values inside kernels have no home. A kernel overwrites an operand that it reads element by element and that has no
// later reader. It does not overwrite a row that is broadcast, or an operand of a kernel that sums.
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
  // The kernel contains a row norm, for which an element needs its whole row.
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
  // An elementwise product is not a library call.
  // CHECK: pc.einsum {{.*}} -> tensor<2x32xf32, #pc.home<[[B]]>>
  %c = pc.einsum "a b, a b -> a b" %b, %x : (tensor<2x32xf32>, tensor<2x32xf32>) -> tensor<2x32xf32>
  pc.output gradient "x" %c global [2, 32] layout <[_, _]> : tensor<2x32xf32>
  return
}

// -----

// A microbatch is a view, which has no bytes of its own: element 1 begins 16 bytes after the start of the stack of two.
// The arena has the stack (32, 64 with alignment) and one value computed from each element (16, 64 with alignment). The
// sum reads both values and overwrites the first.
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
