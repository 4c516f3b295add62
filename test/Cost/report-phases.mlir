// RUN: pc-opt %s --pc-plan-memory --pc-print-report | FileCheck %s

// Each move of a step belongs to a phase. Gathers before the microbatches (of parameters that are kept) belong to the
// forward pass, like moves before the seed. Moves after the microbatches belong to the optimizer. The report has a row
// for each move and phase.
pc.mesh <dp = 2>

// CHECK: "traffic": [
// CHECK:      "count": 2,
// CHECK-NEXT: "move": "all_gather",
// CHECK-NEXT: "payload_bytes": 128,
// CHECK-NEXT: "phase": "backward",
// The kept parameter is gathered once, and the one in the body twice.
// CHECK:      "count": 3,
// CHECK-NEXT: "move": "all_gather",
// CHECK-NEXT: "payload_bytes": 192,
// CHECK-NEXT: "phase": "forward",
// CHECK:      "count": 1,
// CHECK-NEXT: "move": "all_reduce",
// CHECK-NEXT: "payload_bytes": 64,
// CHECK-NEXT: "phase": "optimizer",
func.func @step() {
  %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [16], start = [0], size = [16]> valid [16] global [16] layout <[dp]> : tensor<8xf32>
  %v = pc.parameter "v" dims ["a"] init <fill, 1.0> source <"v", shape = [16], start = [0], size = [16]> valid [16] global [16] layout <[dp]> : tensor<8xf32>
  %x = pc.input tokens dims ["microbatch", "batch"] global [2, 4] layout <[_, dp]> : tensor<2x2xi32>
  %kept = pc.all_gather %w dim 0 on ["dp"] : (tensor<8xf32>) -> tensor<16xf32>
  %r = pc.accumulate (%t = %x : tensor<2x2xi32> -> tensor<2xi32>) {
    %c = pc.cast %t : (tensor<2xi32>) -> tensor<2xf32>
    %again = pc.all_gather %v dim 0 on ["dp"] : (tensor<8xf32>) -> tensor<16xf32>
    %y = pc.einsum "a, a, b -> b" %kept, %again, %c : (tensor<16xf32>, tensor<16xf32>, tensor<2xf32>) -> tensor<2xf32>
    %l = pc.einsum "b ->" %y : (tensor<2xf32>) -> tensor<f32>
    %seed = pc.seed : tensor<f32>
    %behind = pc.all_gather %v dim 0 on ["dp"] : (tensor<8xf32>) -> tensor<16xf32>
    %g = pc.einsum ", , a -> a" %seed, %l, %behind : (tensor<f32>, tensor<f32>, tensor<16xf32>) -> tensor<16xf32>
    pc.yield %g : tensor<16xf32>
  } : tensor<16xf32>
  %all = pc.all_reduce sum %r on ["dp"] : (tensor<16xf32>) -> tensor<16xf32>
  pc.output gradient "w" %all global [16] layout <[_]> : tensor<16xf32>
  return
}
