// Results of experts that are stacked and then summed with the weights of a choice become routed products. Two
// packed parameters would get the same short name, so one gets a longer name.
// RUN: pc-opt %s --pc-raise -o %t.raised && FileCheck %s < %t.raised
// RUN: pc-opt %s --pc-differentiate -o %t.dense && pc-opt %t.raised --pc-differentiate -o %t.routed && pc-equal %t.dense %t.routed

// CHECK: %[[MASK:.*]] = pc.top_k
// CHECK-DAG: %[[UP:.*]] = pc.parameter "h.0.w.*" dims ["experts", "expert_ffn", "embed"]
// CHECK-DAG: %[[DOWN:.*]] = pc.parameter "h.0.w.{4,5,6,7}" dims ["embed", "experts", "expert_ffn"]
// CHECK: pc.einsum "{{.*}}" %{{.*}}, %[[UP]], %[[MASK]] routed 2
// CHECK: pc.activation gelu
// CHECK: %[[H:.*]] = pc.einsum "{{.*}}" %{{.*}}, %{{.*}}, %[[MASK]] routed 2
// CHECK: pc.einsum "{{.*}}" %[[H]], %[[DOWN]], %[[MASK]] routed 2
// CHECK-NOT: pc.columns
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
    // Stacked results of experts without biases; weights from one-hot choices, in any order of the product.
    %iota = pc.iota -> tensor<4xi32>
    %count = pc.cast %iota : (tensor<4xi32>) -> tensor<4xf32>
    %rows = pc.einsum "n -> n m" %count : (tensor<4xf32>) -> tensor<4x4xf32>
    %columns = pc.einsum "m -> n m" %count : (tensor<4xf32>) -> tensor<4x4xf32>
    %one = pc.constant 1.0 : tensor<f32>
    %ones = pc.einsum "-> n m" %one : (tensor<f32>) -> tensor<4x4xf32>
    %zero = pc.constant 0.0 : tensor<f32>
    %zeros = pc.einsum "-> n m" %zero : (tensor<f32>) -> tensor<4x4xf32>
    %same = pc.select equal %rows, %columns, %ones, %zeros : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %hot = pc.einsum "n m, b s n -> b s m" %same, %weights : (tensor<4x4xf32>, tensor<4x3x4xf32>) -> tensor<4x3x4xf32>
    %up0 = pc.parameter "h.0.w.0" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.w.0", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre0 = pc.einsum "b s e, f e -> b s f" %x, %up0 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h0 = pc.activation gelu %pre0 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down0 = pc.parameter "h.0.w.4" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.w.4", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d0 = pc.einsum "b s f, e f -> b s e" %h0, %down0 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %w0 = pc.einsum "b s e -> b s u e" %d0 : (tensor<4x3x8xf32>) -> tensor<4x3x1x8xf32>
    %q0 = pc.columns %w0 dim 2 from 0 : (tensor<4x3x1x8xf32>) -> tensor<4x3x4x8xf32>
    %up1 = pc.parameter "h.0.w.1" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.w.1", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre1 = pc.einsum "b s e, f e -> b s f" %x, %up1 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h1 = pc.activation gelu %pre1 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down1 = pc.parameter "h.0.w.5" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.w.5", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d1 = pc.einsum "b s f, e f -> b s e" %h1, %down1 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %w1 = pc.einsum "b s e -> b s u e" %d1 : (tensor<4x3x8xf32>) -> tensor<4x3x1x8xf32>
    %q1 = pc.columns %w1 dim 2 from -1 : (tensor<4x3x1x8xf32>) -> tensor<4x3x4x8xf32>
    %t1 = pc.add %q0, %q1 : (tensor<4x3x4x8xf32>, tensor<4x3x4x8xf32>) -> tensor<4x3x4x8xf32>
    %up2 = pc.parameter "h.0.w.2" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.w.2", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre2 = pc.einsum "b s e, f e -> b s f" %x, %up2 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h2 = pc.activation gelu %pre2 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down2 = pc.parameter "h.0.w.6" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.w.6", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d2 = pc.einsum "b s f, e f -> b s e" %h2, %down2 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %w2 = pc.einsum "b s e -> b s u e" %d2 : (tensor<4x3x8xf32>) -> tensor<4x3x1x8xf32>
    %q2 = pc.columns %w2 dim 2 from -2 : (tensor<4x3x1x8xf32>) -> tensor<4x3x4x8xf32>
    %t2 = pc.add %t1, %q2 : (tensor<4x3x4x8xf32>, tensor<4x3x4x8xf32>) -> tensor<4x3x4x8xf32>
    %up3 = pc.parameter "h.0.w.3" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.w.3", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre3 = pc.einsum "b s e, f e -> b s f" %x, %up3 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %h3 = pc.activation gelu %pre3 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down3 = pc.parameter "h.0.w.7" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.w.7", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d3 = pc.einsum "b s f, e f -> b s e" %h3, %down3 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %w3 = pc.einsum "b s e -> b s u e" %d3 : (tensor<4x3x8xf32>) -> tensor<4x3x1x8xf32>
    %q3 = pc.columns %w3 dim 2 from -3 : (tensor<4x3x1x8xf32>) -> tensor<4x3x4x8xf32>
    %t3 = pc.add %t2, %q3 : (tensor<4x3x4x8xf32>, tensor<4x3x4x8xf32>) -> tensor<4x3x4x8xf32>
    %out = pc.einsum "b s n, b s n e -> b s e" %hot, %t3 : (tensor<4x3x4xf32>, tensor<4x3x4x8xf32>) -> tensor<4x3x8xf32>
    %all = pc.einsum "b s e, v e -> b s v" %out, %wte : (tensor<4x3x8xf32>, tensor<16x8xf32>) -> tensor<4x3x16xf32>
    %z = pc.logsumexp %all : (tensor<4x3x16xf32>) -> tensor<4x3xf32>
    %zz = pc.einsum "b s, b s ->" %z, %z : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<f32>
    pc.output loss "loss" %zz : tensor<f32>
    return
  }
}
