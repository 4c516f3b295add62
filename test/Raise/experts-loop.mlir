// A loop over experts, which all tokens compute, becomes routed products: packed parameters, the mask of the choice, and
// weights that multiply before the last product, as pc-import writes them. Biases have their own products.
// RUN: pc-opt %s --pc-raise -o %t.raised && FileCheck %s < %t.raised
// RUN: pc-opt %s --pc-differentiate -o %t.dense && pc-opt %t.raised --pc-differentiate -o %t.routed && pc-equal %t.dense %t.routed
// Experts are split, and tokens sent to them, as in an imported mixture of experts. Routed tokens have memory.
// RUN: pc-compile %s --mesh ep=2 --to=placed -o %t.placed && pc-equal %t.dense %t.placed
// RUN: pc-compile %s --mesh ep=2 --expert-exchange=rows --to=placed -o %t.rows && pc-equal %t.dense %t.rows
// RUN: pc-compile %s --to=planned -o - | FileCheck %s --check-prefix=ROWS
// ROWS: pc.rows<24 of 3>
// Muon treats each expert's matrix by itself, and biases as vectors.
// RUN: pc-opt %s --pc-differentiate=optimizer=muon -o %t.muon && pc-opt %t.raised --pc-differentiate=optimizer=muon -o %t.packed && pc-equal %t.muon %t.packed

// CHECK: pc.parameter "h.0.router" dims ["experts", "embed"]
// CHECK: %[[MASK:.*]] = pc.top_k %{{.*}} k 2 layer 0
// CHECK: %[[W:.*]] = pc.einsum "b s n, b s n -> b s n"
// CHECK-DAG: %[[UP:.*]] = pc.parameter "h.0.experts.*.up" dims ["experts", "expert_ffn", "embed"] {{.*}} along 0 parts [#pc.part<"h.0.experts.0.up", key = 2, {{.*}}#pc.part<"h.0.experts.3.up", key = 14,
// CHECK-DAG: %[[B:.*]] = pc.parameter "h.0.experts.*.bias" dims ["experts", "expert_ffn"]
// CHECK-DAG: %[[DOWN:.*]] = pc.parameter "h.0.experts.*.down" dims ["embed", "experts", "expert_ffn"] {{.*}} along 1
// CHECK-DAG: %[[C:.*]] = pc.parameter "h.0.experts.*.shift" dims ["experts", "embed"]
// CHECK: %[[PRE:.*]] = pc.einsum "{{.*}}" %{{.*}}, %[[UP]], %[[MASK]] routed 2
// CHECK: %[[BIAS:.*]] = pc.einsum "{{.*}}" %[[B]], %[[MASK]] routed 2
// CHECK: %[[IN:.*]] = pc.add %[[PRE]], %[[BIAS]]
// CHECK: %[[H:.*]] = pc.activation gelu %[[IN]] : (tensor<4x3x4x6xf32>)
// CHECK: %[[WH:.*]] = pc.einsum "{{.*}}" %[[W]], %[[H]], %[[MASK]] routed 2
// CHECK: %[[Y:.*]] = pc.einsum "{{.*}}" %[[WH]], %[[DOWN]], %[[MASK]] routed 2
// CHECK: %[[SHIFT:.*]] = pc.einsum "{{.*}}" %[[W]], %[[C]] :
// CHECK: %[[SUM:.*]] = pc.add %[[Y]], %[[SHIFT]]
// CHECK: pc.add %{{.*}}, %[[SUM]]
// CHECK-NOT: pc.parameter
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
    %iota = pc.iota -> tensor<4xi32>
    %count = pc.cast %iota : (tensor<4xi32>) -> tensor<4xf32>
    %one = pc.constant 1.0 : tensor<f32>
    %ones = pc.einsum "-> n" %one : (tensor<f32>) -> tensor<4xf32>
    %zero = pc.constant 0.0 : tensor<f32>
    %zeros = pc.einsum "-> n" %zero : (tensor<f32>) -> tensor<4xf32>
    %none = pc.einsum "-> b s e" %zero : (tensor<f32>) -> tensor<4x3x8xf32>
    // Expert 0
    %i0 = pc.constant 0.0 : tensor<f32>
    %iw0 = pc.einsum "-> n" %i0 : (tensor<f32>) -> tensor<4xf32>
    %hot0 = pc.select equal %count, %iw0, %ones, %zeros : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %share0 = pc.einsum "b s n, n -> b s" %weights, %hot0 : (tensor<4x3x4xf32>, tensor<4xf32>) -> tensor<4x3xf32>
    %up0 = pc.parameter "h.0.experts.0.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.0.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre0 = pc.einsum "b s e, f e -> b s f" %x, %up0 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %b0 = pc.parameter "h.0.experts.0.bias" dims ["ffn"] init <normal, 1.0> source <"h.0.experts.0.bias", shape = [6], start = [0], size = [6]> : tensor<6xf32>
    %bw0 = pc.einsum "f -> b s f" %b0 : (tensor<6xf32>) -> tensor<4x3x6xf32>
    %in0 = pc.add %pre0, %bw0 : (tensor<4x3x6xf32>, tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %h0 = pc.activation gelu %in0 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down0 = pc.parameter "h.0.experts.0.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.0.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d0 = pc.einsum "b s f, e f -> b s e" %h0, %down0 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %c0 = pc.parameter "h.0.experts.0.shift" dims ["embed"] init <normal, 1.0> source <"h.0.experts.0.shift", shape = [8], start = [0], size = [8]> : tensor<8xf32>
    %cw0 = pc.einsum "e -> b s e" %c0 : (tensor<8xf32>) -> tensor<4x3x8xf32>
    %y0 = pc.add %d0, %cw0 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %p0 = pc.einsum "b s, b s e -> b s e" %share0, %y0 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s0 = pc.add %none, %p0 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    // Expert 1
    %i1 = pc.constant 1.0 : tensor<f32>
    %iw1 = pc.einsum "-> n" %i1 : (tensor<f32>) -> tensor<4xf32>
    %hot1 = pc.select equal %count, %iw1, %ones, %zeros : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %share1 = pc.einsum "b s n, n -> b s" %weights, %hot1 : (tensor<4x3x4xf32>, tensor<4xf32>) -> tensor<4x3xf32>
    %up1 = pc.parameter "h.0.experts.1.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.1.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre1 = pc.einsum "b s e, f e -> b s f" %x, %up1 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %b1 = pc.parameter "h.0.experts.1.bias" dims ["ffn"] init <normal, 1.0> source <"h.0.experts.1.bias", shape = [6], start = [0], size = [6]> : tensor<6xf32>
    %bw1 = pc.einsum "f -> b s f" %b1 : (tensor<6xf32>) -> tensor<4x3x6xf32>
    %in1 = pc.add %pre1, %bw1 : (tensor<4x3x6xf32>, tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %h1 = pc.activation gelu %in1 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down1 = pc.parameter "h.0.experts.1.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.1.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d1 = pc.einsum "b s f, e f -> b s e" %h1, %down1 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %c1 = pc.parameter "h.0.experts.1.shift" dims ["embed"] init <normal, 1.0> source <"h.0.experts.1.shift", shape = [8], start = [0], size = [8]> : tensor<8xf32>
    %cw1 = pc.einsum "e -> b s e" %c1 : (tensor<8xf32>) -> tensor<4x3x8xf32>
    %y1 = pc.add %d1, %cw1 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %p1 = pc.einsum "b s, b s e -> b s e" %share1, %y1 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s1 = pc.add %s0, %p1 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    // Expert 2
    %i2 = pc.constant 2.0 : tensor<f32>
    %iw2 = pc.einsum "-> n" %i2 : (tensor<f32>) -> tensor<4xf32>
    %hot2 = pc.select equal %count, %iw2, %ones, %zeros : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %share2 = pc.einsum "b s n, n -> b s" %weights, %hot2 : (tensor<4x3x4xf32>, tensor<4xf32>) -> tensor<4x3xf32>
    %up2 = pc.parameter "h.0.experts.2.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.2.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre2 = pc.einsum "b s e, f e -> b s f" %x, %up2 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %b2 = pc.parameter "h.0.experts.2.bias" dims ["ffn"] init <normal, 1.0> source <"h.0.experts.2.bias", shape = [6], start = [0], size = [6]> : tensor<6xf32>
    %bw2 = pc.einsum "f -> b s f" %b2 : (tensor<6xf32>) -> tensor<4x3x6xf32>
    %in2 = pc.add %pre2, %bw2 : (tensor<4x3x6xf32>, tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %h2 = pc.activation gelu %in2 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down2 = pc.parameter "h.0.experts.2.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.2.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d2 = pc.einsum "b s f, e f -> b s e" %h2, %down2 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %c2 = pc.parameter "h.0.experts.2.shift" dims ["embed"] init <normal, 1.0> source <"h.0.experts.2.shift", shape = [8], start = [0], size = [8]> : tensor<8xf32>
    %cw2 = pc.einsum "e -> b s e" %c2 : (tensor<8xf32>) -> tensor<4x3x8xf32>
    %y2 = pc.add %d2, %cw2 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %p2 = pc.einsum "b s, b s e -> b s e" %share2, %y2 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s2 = pc.add %s1, %p2 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    // Expert 3
    %i3 = pc.constant 3.0 : tensor<f32>
    %iw3 = pc.einsum "-> n" %i3 : (tensor<f32>) -> tensor<4xf32>
    %hot3 = pc.select equal %count, %iw3, %ones, %zeros : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %share3 = pc.einsum "b s n, n -> b s" %weights, %hot3 : (tensor<4x3x4xf32>, tensor<4xf32>) -> tensor<4x3xf32>
    %up3 = pc.parameter "h.0.experts.3.up" dims ["ffn", "embed"] init <normal, 1.0> source <"h.0.experts.3.up", shape = [6, 8], start = [0, 0], size = [6, 8]> : tensor<6x8xf32>
    %pre3 = pc.einsum "b s e, f e -> b s f" %x, %up3 : (tensor<4x3x8xf32>, tensor<6x8xf32>) -> tensor<4x3x6xf32>
    %b3 = pc.parameter "h.0.experts.3.bias" dims ["ffn"] init <normal, 1.0> source <"h.0.experts.3.bias", shape = [6], start = [0], size = [6]> : tensor<6xf32>
    %bw3 = pc.einsum "f -> b s f" %b3 : (tensor<6xf32>) -> tensor<4x3x6xf32>
    %in3 = pc.add %pre3, %bw3 : (tensor<4x3x6xf32>, tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %h3 = pc.activation gelu %in3 : (tensor<4x3x6xf32>) -> tensor<4x3x6xf32>
    %down3 = pc.parameter "h.0.experts.3.down" dims ["embed", "ffn"] init <normal, 1.0> source <"h.0.experts.3.down", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
    %d3 = pc.einsum "b s f, e f -> b s e" %h3, %down3 : (tensor<4x3x6xf32>, tensor<8x6xf32>) -> tensor<4x3x8xf32>
    %c3 = pc.parameter "h.0.experts.3.shift" dims ["embed"] init <normal, 1.0> source <"h.0.experts.3.shift", shape = [8], start = [0], size = [8]> : tensor<8xf32>
    %cw3 = pc.einsum "e -> b s e" %c3 : (tensor<8xf32>) -> tensor<4x3x8xf32>
    %y3 = pc.add %d3, %cw3 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %p3 = pc.einsum "b s, b s e -> b s e" %share3, %y3 : (tensor<4x3xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %s3 = pc.add %s2, %p3 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %out = pc.add %x, %s3 : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %all = pc.einsum "b s e, v e -> b s v" %out, %wte : (tensor<4x3x8xf32>, tensor<16x8xf32>) -> tensor<4x3x16xf32>
    %z = pc.logsumexp %all : (tensor<4x3x16xf32>) -> tensor<4x3xf32>
    %zz = pc.einsum "b s, b s ->" %z, %z : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<f32>
    pc.output loss "loss" %zz : tensor<f32>
    return
  }
}
