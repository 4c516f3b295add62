// RUN: pc-opt %s --pc-plan-memory --pc-print-report | FileCheck %s

// A value that the whole step reads instead of a parameter counts as a weight: the shard (64 x 4 = 256 bytes), and the
// shard after rounding and gathering (256). The rounded shard (128), which only a move reads, and values that are
// gathered in the body (512) count as communication. Values that the body computes are activations. The peak is in the
// body, with the gathered weight, the gathered parameter (512), the product (512) and its sum (4, aligned 64).
// CHECK:      "memory": {
// CHECK-NEXT: "activations": 576,
// CHECK-NEXT: "communication": 512,
// CHECK-NEXT: "gradients": 0,
// CHECK-NEXT: "optimizer": 0,
// CHECK-NEXT: "parameters": 512,
// CHECK:      "memory_at_most": {
// CHECK:      "parameters": 512,
pc.mesh <dp = 2>
func.func @step() {
  %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [64], start = [0], size = [64]> global [64] layout <[_]> : tensor<64xf32>
  %x = pc.input tokens dims ["microbatch", "batch"] global [1, 2] layout <[_, _]> : tensor<1x2xi32>
  %b = pc.cast %w : (tensor<64xf32>) -> tensor<64xbf16>
  %h = pc.all_gather %b dim 0 on ["dp"] : (tensor<64xbf16>) -> tensor<128xbf16>
  %r = pc.accumulate (%t = %x : tensor<1x2xi32> -> tensor<2xi32>) {
    %g = pc.all_gather %w dim 0 on ["dp"] : (tensor<64xf32>) -> tensor<128xf32>
    %p = pc.einsum "a, a -> a" %g, %h : (tensor<128xf32>, tensor<128xbf16>) -> tensor<128xf32>
    %s = pc.einsum "a, a ->" %p, %g : (tensor<128xf32>, tensor<128xf32>) -> tensor<f32>
    pc.yield %s : tensor<f32>
  } : tensor<f32>
  pc.output loss "loss" %r global [] layout <[]> : tensor<f32>
  return
}
