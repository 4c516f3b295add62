// One linear is split by columns, and the next by rows. There is one all_reduce after the pair, and one after the
// table, whose vocabulary is split.
// RUN: pc-opt %s --pc-set-mesh=mesh=tp=2 --pc-tensor-parallel --pc-verify-placed | FileCheck %s
// CHECK: pc.parameter "w" {{.*}} : tensor<16x8xf32, #pc.place<[tp, _]>>
// CHECK: pc.parameter "up" {{.*}} : tensor<8x16xf32, #pc.place<[_, tp]>>
// CHECK: pc.parameter "down" {{.*}} : tensor<16x8xf32, #pc.place<[tp, _]>>
// CHECK: %[[X:.*]] = pc.embedding {{.*}} sum(tp)>>
// CHECK-NEXT: pc.all_reduce sum %[[X]] on ["tp"]
// CHECK-NEXT: pc.einsum {{.*}} -> tensor<4x8x16xf32, #pc.place<[_, _, tp]>>
// CHECK-NEXT: %[[Y:.*]] = pc.einsum {{.*}} -> tensor<4x8x8xf32, #pc.place<[_, _, _] sum(tp)>>
// CHECK-NEXT: pc.all_reduce sum %[[Y]] on ["tp"]

pc.program "mlp" batch 4 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %up = pc.parameter "up" dims ["embed", "ffn"] init <fill, 1.0> source <"up", shape = [8, 16], start = [0, 0], size = [8, 16]> : tensor<8x16xf32>
  %down = pc.parameter "down" dims ["ffn", "embed"] init <fill, 1.0> source <"down", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32>
  %x = pc.embedding %w, %tokens : (tensor<16x8xf32>, tensor<4x8xi32>) -> tensor<4x8x8xf32>
  %h = pc.einsum "b s e, e f -> b s f" %x, %up : (tensor<4x8x8xf32>, tensor<8x16xf32>) -> tensor<4x8x16xf32>
  %y = pc.einsum "b s f, f e -> b s e" %h, %down : (tensor<4x8x16xf32>, tensor<16x8xf32>) -> tensor<4x8x8xf32>
  pc.output logits "y" %y : tensor<4x8x8xf32>
  return
}
