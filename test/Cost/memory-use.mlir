// RUN: pc-opt %s --pc-plan-memory --pc-print-report | FileCheck %s

// There is one microbatch. All tensors have 64 x 4 = 256 bytes, except the gathered one (512). The peak is at the
// gather, with its operand (an activation) and its result (communication). The leaves are the parameter, its state, and
// the input (2 x 4, aligned 64).
// CHECK: "device": 1344
// CHECK:      "activations": 256,
// CHECK-NEXT: "communication": 512,
// CHECK-NEXT: "gradients": 0,
// CHECK-NEXT: "optimizer": 256,
// CHECK-NEXT: "parameters": 256,
// CHECK-NEXT: "workspace": 64
// CHECK-NEXT: },
// CHECK-NEXT: "memory_at_most": {
// CHECK-NEXT: "activations": 256,
// CHECK-NEXT: "communication": 512,
pc.mesh <tp = 2>
func.func @step() {
  %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [64], start = [0], size = [64]> global [64] layout <[_]> : tensor<64xf32>
  %m = pc.state "m" of "w" dims ["a"] global [64] layout <[_]> : tensor<64xf32>
  %x = pc.input tokens dims ["microbatch", "batch"] global [1, 2] layout <[_, _]> : tensor<1x2xi32>
  %r = pc.accumulate (%t = %x : tensor<1x2xi32> -> tensor<2xi32>) {
    %a = pc.scale %w by 2.0 : (tensor<64xf32>) -> tensor<64xf32>
    %g = pc.all_gather %a dim 0 on ["tp"] : (tensor<64xf32>) -> tensor<128xf32>
    %s = pc.einsum "a ->" %g : (tensor<128xf32>) -> tensor<f32>
    pc.yield %s : tensor<f32>
  } : tensor<f32>
  pc.output loss "loss" %r global [] layout <[]> : tensor<f32>
  pc.update "m" of "w" %m : tensor<64xf32>
  return
}
