// Experts whose parameters are stacked in one tensor, and which all tokens compute, become routed products.
// RUN: pc-opt %s --pc-raise -o %t.raised && FileCheck %s < %t.raised
// RUN: pc-opt %s --pc-differentiate -o %t.dense && pc-opt %t.raised --pc-differentiate -o %t.routed && pc-equal %t.dense %t.routed
// RUN: pc-compile %s --mesh ep=2 --to=placed -o %t.placed && pc-equal %t.dense %t.placed

// CHECK: pc.parameter "h.0.router" dims ["experts", "embed"]
// CHECK: %[[MASK:.*]] = pc.top_k %{{.*}} k 2 layer 0
// CHECK: %[[W:.*]] = pc.einsum "b s n, b s n -> b s n"
// CHECK-DAG: %[[GATE:.*]] = pc.parameter "h.0.gate" dims ["experts", "embed", "expert_ffn"]
// CHECK-DAG: %[[UP:.*]] = pc.parameter "h.0.up" dims ["experts", "embed", "expert_ffn"]
// CHECK-DAG: %[[DOWN:.*]] = pc.parameter "h.0.down" dims ["experts", "expert_ffn", "embed"]
// CHECK: %[[G:.*]] = pc.einsum "i0 i1 i4, i2 i4 i3, i0 i1 i2 -> i0 i1 i2 i3" %{{.*}}, %[[GATE]], %[[MASK]] routed 2
// CHECK: %[[U:.*]] = pc.einsum "i1 i2 i4, i0 i4 i3, i1 i2 i0 -> i1 i2 i0 i3" %{{.*}}, %[[UP]], %[[MASK]] routed 2
// CHECK: %[[SILU:.*]] = pc.activation silu %[[G]]
// CHECK: %[[H:.*]] = pc.einsum "{{.*}}" %{{.*}}, %{{.*}}, %{{.*}}, %[[MASK]] routed 2 : ({{.*}}) -> tensor<4x3x4x6xf32>
// CHECK: pc.einsum "{{.*}}" %[[H]], %[[DOWN]], %[[MASK]] routed 2 : ({{.*}}) -> tensor<4x3x8xf32>
// CHECK: %[[MASK1:.*]] = pc.top_k %{{.*}} k 1 layer 1
// CHECK: %[[W1:.*]] = pc.softmax
// CHECK: pc.activation relu
// CHECK: %[[H1:.*]] = pc.einsum "{{.*}}" %[[W1]], %{{.*}}, %[[MASK1]] routed 1
// CHECK: pc.einsum "{{.*}}" %[[H1]], %{{.*}}, %[[MASK1]] routed 1
module {
  pc.program "experts" batch 4 sequence 3 vocabulary 16 config "{}"
  func.func @model() {
    %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x3xi32>
    %wte = pc.parameter "wte" dims ["vocab", "embed"] init <normal, 1.0> source <"wte", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
    %x = pc.embedding %wte, %tokens : (tensor<16x8xf32>, tensor<4x3xi32>) -> tensor<4x3x8xf32> loc("embedding")
    %router = pc.parameter "h.0.router" dims ["choices", "embed"] init <normal, 1.0> source <"h.0.router", shape = [4, 8], start = [0, 0], size = [4, 8]> : tensor<4x8xf32>
    %logits = pc.einsum "b s e, n e -> b s n" %x, %router : (tensor<4x3x8xf32>, tensor<4x8xf32>) -> tensor<4x3x4xf32>
    %scores = pc.softmax %logits : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %chosen = pc.top_k %scores k 2 : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %weights = pc.einsum "b s n, b s n -> b s n" %scores, %chosen : (tensor<4x3x4xf32>, tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    // Parameters of all experts are one tensor. Its product sums over a transposed dim.
    %gate = pc.parameter "h.0.gate" dims ["choices", "embed", "ffn"] init <normal, 1.0> source <"h.0.gate", shape = [4, 8, 6], start = [0, 0, 0], size = [4, 8, 6]> : tensor<4x8x6xf32>
    %turned = pc.einsum "n e f -> e n f" %gate : (tensor<4x8x6xf32>) -> tensor<8x4x6xf32>
    %g = pc.einsum "b s e, e n f -> b s n f" %x, %turned : (tensor<4x3x8xf32>, tensor<8x4x6xf32>) -> tensor<4x3x4x6xf32>
    %up = pc.parameter "h.0.up" dims ["choices", "embed", "ffn"] init <normal, 1.0> source <"h.0.up", shape = [4, 8, 6], start = [0, 0, 0], size = [4, 8, 6]> : tensor<4x8x6xf32>
    %u = pc.einsum "b s e, n e f -> n b s f" %x, %up : (tensor<4x3x8xf32>, tensor<4x8x6xf32>) -> tensor<4x4x3x6xf32>
    %silu = pc.activation silu %g : (tensor<4x3x4x6xf32>) -> tensor<4x3x4x6xf32>
    %h = pc.einsum "b s n f, n b s f -> b s n f" %silu, %u : (tensor<4x3x4x6xf32>, tensor<4x4x3x6xf32>) -> tensor<4x3x4x6xf32>
    %down = pc.parameter "h.0.down" dims ["choices", "ffn", "embed"] init <normal, 1.0> source <"h.0.down", shape = [4, 6, 8], start = [0, 0, 0], size = [4, 6, 8]> : tensor<4x6x8xf32>
    %y = pc.einsum "b s n f, n f e -> b s n e" %h, %down : (tensor<4x3x4x6xf32>, tensor<4x6x8xf32>) -> tensor<4x3x4x8xf32>
    %moe = pc.einsum "b s n e, b s n -> b s e" %y, %weights : (tensor<4x3x4x8xf32>, tensor<4x3x4xf32>) -> tensor<4x3x8xf32>
    %half = pc.scale %moe by 0.5 : (tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %r = pc.add %x, %half : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    // The same with weights that are a softmax of the chosen scores only, and a sum at the end.
    %router2 = pc.parameter "h.1.router" dims ["choices", "embed"] init <normal, 1.0> source <"h.1.router", shape = [4, 8], start = [0, 0], size = [4, 8]> : tensor<4x8xf32>
    %logits2 = pc.einsum "b s e, n e -> b s n" %r, %router2 : (tensor<4x3x8xf32>, tensor<4x8xf32>) -> tensor<4x3x4xf32>
    %chosen2 = pc.top_k %logits2 k 1 : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %one = pc.constant 1.0 : tensor<f32>
    %ones = pc.einsum "-> b s n" %one : (tensor<f32>) -> tensor<4x3x4xf32>
    %low = pc.constant -1.0e+30 : tensor<f32>
    %lows = pc.einsum "-> b s n" %low : (tensor<f32>) -> tensor<4x3x4xf32>
    %seen = pc.select equal %chosen2, %ones, %logits2, %lows : (tensor<4x3x4xf32>, tensor<4x3x4xf32>, tensor<4x3x4xf32>, tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %weights2 = pc.softmax %seen : (tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %up2 = pc.parameter "h.1.up" dims ["choices", "embed", "ffn"] init <normal, 1.0> source <"h.1.up", shape = [4, 8, 6], start = [0, 0, 0], size = [4, 8, 6]> : tensor<4x8x6xf32>
    %u2 = pc.einsum "b s e, n e f -> b s n f" %r, %up2 : (tensor<4x3x8xf32>, tensor<4x8x6xf32>) -> tensor<4x3x4x6xf32>
    %h2 = pc.activation relu %u2 : (tensor<4x3x4x6xf32>) -> tensor<4x3x4x6xf32>
    %down2 = pc.parameter "h.1.down" dims ["choices", "ffn", "embed"] init <normal, 1.0> source <"h.1.down", shape = [4, 6, 8], start = [0, 0, 0], size = [4, 6, 8]> : tensor<4x6x8xf32>
    %y2 = pc.einsum "b s n f, n f e -> b s n e" %h2, %down2 : (tensor<4x3x4x6xf32>, tensor<4x6x8xf32>) -> tensor<4x3x4x8xf32>
    %wy2 = pc.einsum "b s n e, b s n -> b s n e" %y2, %weights2 : (tensor<4x3x4x8xf32>, tensor<4x3x4xf32>) -> tensor<4x3x4x8xf32>
    %moe2 = pc.einsum "b s n e -> b s e" %wy2 : (tensor<4x3x4x8xf32>) -> tensor<4x3x8xf32>
    %out = pc.add %r, %moe2 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %all = pc.einsum "b s e, v e -> b s v" %out, %wte : (tensor<4x3x8xf32>, tensor<16x8xf32>) -> tensor<4x3x16xf32>
    %z = pc.logsumexp %all : (tensor<4x3x16xf32>) -> tensor<4x3xf32>
    %zz = pc.einsum "b s, b s ->" %z, %z : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<f32>
    pc.output loss "loss" %zz : tensor<f32>
    return
  }
}
