// RUN: pc-opt %s --split-input-file --verify-diagnostics --pc-plan-memory --pc-generate-kernels

pc.mesh <dp = 1>
pc.program "m" batch 1 sequence 4 vocabulary 100 config "{}"
func.func @step() {
  %x = pc.parameter "x" dims ["b", "s", "h", "d"] init <fill, 1.0> source <"x", shape = [1, 4, 2, 8], start = [0, 0, 0, 0], size = [1, 4, 2, 8]> global [1, 4, 2, 8] layout <[_, _, _, _]> : tensor<1x4x2x8xf64>
  %c = pc.parameter "c" dims ["s", "d"] init <fill, 1.0> source <"c", shape = [4, 4], start = [0, 0], size = [4, 4]> global [4, 4] layout <[_, _]> : tensor<4x4xf64>
  // expected-error@+1 {{has no CPU kernel for 'tensor<1x4x2x8xf64>'; supported are static tensors of f32, bf16, i32 and, for weights, i8 and i4}}
  %y = pc.rope %x, %c, %c : (tensor<1x4x2x8xf64>, tensor<4x4xf64>, tensor<4x4xf64>) -> tensor<1x4x2x8xf64>
  pc.output gradient "x" %y global [1, 4, 2, 8] layout <[_, _, _, _]> : tensor<1x4x2x8xf64>
  return
}
