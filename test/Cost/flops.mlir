// RUN: pc-opt %s --pc-plan-memory --pc-print-report | FileCheck %s

// Batch 2, 8 positions, 1 key/value head with 2 query heads of size 4. Attention is 2 products over the rectangle of
// scores and its gradient 5, 2 operations each: 14 x (2 x 8 x 8 x 2 x 4) = 14336. The product in a kernel has 2 x (8 x
// 8 x 64) = 8192; the product "s, s t, t ->" of three operands has 3 x 8 x 8 = 192. Pointwise products, and sums of one
// operand, are not counted. One rank has 14336 + 8192 + 192 = 22720.
// CHECK: "flops_per_step": 22720,
func.func @step() {
  %q = pc.parameter "q" dims ["b", "s", "k", "g", "d"] init <fill, 1.0> source <"q", shape = [128], start = [0], size = [128]> global [2, 8, 1, 2, 4] layout <[_, _, _, _, _]> : tensor<2x8x1x2x4xf32>
  %k = pc.parameter "k" dims ["b", "s", "k", "d"] init <fill, 1.0> source <"k", shape = [64], start = [0], size = [64]> global [2, 8, 1, 4] layout <[_, _, _, _]> : tensor<2x8x1x4xf32>
  %w = pc.parameter "w" dims ["s", "f"] init <fill, 1.0> source <"w", shape = [8, 64], start = [0, 0], size = [8, 64]> global [8, 64] layout <[_, _]> : tensor<8x64xf32>
  %o, %lse = pc.attention causal %q, %k, %k scale 0.5 : (tensor<2x8x1x2x4xf32>, tensor<2x8x1x4xf32>, tensor<2x8x1x4xf32>) -> (tensor<2x8x1x2x4xf32>, tensor<2x1x2x8xf32>)
  %dq, %dk, %dv = pc.attention_grad causal %q, %k, %k, %o, %lse, %o scale 0.5 : (tensor<2x8x1x2x4xf32>, tensor<2x8x1x4xf32>, tensor<2x8x1x4xf32>, tensor<2x8x1x2x4xf32>, tensor<2x1x2x8xf32>, tensor<2x8x1x2x4xf32>) -> (tensor<2x8x1x2x4xf32>, tensor<2x8x1x4xf32>, tensor<2x8x1x4xf32>)
  %s = pc.fusion (%a = %w : tensor<8x64xf32> -> tensor<8x64xf32>) {
    %y = pc.einsum "s f, t f -> s t" %a, %a : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x8xf32>
    %z = pc.einsum "s t, s t -> s t" %y, %y : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    pc.yield %z : tensor<8x8xf32>
  } : tensor<8x8xf32>
  %c = pc.einsum "s t -> s" %s : (tensor<8x8xf32>) -> tensor<8xf32>
  %n = pc.einsum "s, s t, t ->" %c, %s, %c : (tensor<8xf32>, tensor<8x8xf32>, tensor<8xf32>) -> tensor<f32>
  pc.output loss "loss" %n global [] layout <[]> : tensor<f32>
  return
}
