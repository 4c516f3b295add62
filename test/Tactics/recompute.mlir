// Full recomputation keeps only the input of a layer. All other values that its backward pass reads are computed again,
// after the seed of the gradient.
// RUN: pc-opt %s --pc-differentiate --pc-recompute=mode=full -o %t && FileCheck %s < %t
// RUN: pc-opt %s --pc-differentiate -o %t.step && pc-equal %t.step %t
// CHECK: %[[X:.*]] = pc.embedding
// CHECK-NEXT: %[[Y:.*]] = pc.einsum "b s e, e f -> b s f" %[[X]], %[[W:.*]] :
// CHECK-NEXT: pc.activation silu %[[Y]]
// CHECK: pc.seed
// CHECK: %[[AGAIN:.*]] = pc.einsum "b s e, e f -> b s f" %[[X]], %[[W]] :
// CHECK-NEXT: pc.activation_grad silu %{{.*}}, %[[AGAIN]]

pc.program "layers" batch 4 sequence 4 vocabulary 16 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32> loc("w")
  %a = pc.parameter "h.0.up" dims ["embed", "ffn"] init <fill, 1.0> source <"a", shape = [8, 8], start = [0, 0], size = [8, 8]> : tensor<8x8xf32> loc("h.0.up")
  %b = pc.parameter "h.1.up" dims ["embed", "ffn"] init <fill, 1.0> source <"b", shape = [8, 8], start = [0, 0], size = [8, 8]> : tensor<8x8xf32> loc("h.1.up")
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x4xi32>
  %targets = pc.input targets dims ["batch", "sequence"] : tensor<4x4xi32>
  %x = pc.embedding %w, %tokens : (tensor<16x8xf32>, tensor<4x4xi32>) -> tensor<4x4x8xf32> loc("w")
  %y = pc.einsum "b s e, e f -> b s f" %x, %a : (tensor<4x4x8xf32>, tensor<8x8xf32>) -> tensor<4x4x8xf32> loc("h.0.up")
  %s = pc.activation silu %y : (tensor<4x4x8xf32>) -> tensor<4x4x8xf32> loc("h.0.act")
  %z = pc.einsum "b s e, e f -> b s f" %s, %b : (tensor<4x4x8xf32>, tensor<8x8xf32>) -> tensor<4x4x8xf32> loc("h.1.up")
  %l = pc.einsum "b s e, v e -> b s v" %z, %w : (tensor<4x4x8xf32>, tensor<16x8xf32>) -> tensor<4x4x16xf32> loc("head")
  %nll = pc.cross_entropy %l, %targets : (tensor<4x4x16xf32>, tensor<4x4xi32>) -> tensor<4x4xf32> loc("loss")
  %sum = pc.einsum "b s ->" %nll : (tensor<4x4xf32>) -> tensor<f32> loc("loss")
  pc.output loss "loss" %sum : tensor<f32>
  return
}
