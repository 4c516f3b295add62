// The batch is split and parameters stay whole, so nothing moves in the forward pass.
// RUN: pc-opt %s --pc-set-mesh=mesh=dp=2 --pc-data-parallel --pc-verify-placed | FileCheck %s
// CHECK: pc.parameter "w" {{.*}} : tensor<16x8xf32, #pc.place<[_, _]>>
// CHECK: pc.input tokens {{.*}} : tensor<4x8xi32, #pc.place<[dp, _]>>
// CHECK-NOT: pc.{{all_|broadcast|scatter}}
// CHECK: pc.output logits "y" {{.*}} : tensor<4x8x8xf32, #pc.place<[dp, _, _]>>

// In the naive form, rank 0 has everything. It broadcasts the parameters and scatters the batch.
// RUN: pc-opt %s --pc-set-mesh=mesh=dp=2 --pc-data-parallel=mode=naive --pc-verify-placed | FileCheck %s --check-prefix=NAIVE
// NAIVE: %[[W:.*]] = pc.parameter "w" {{.*}} #pc.place<[_, _] root(dp)>>
// NAIVE: %[[T:.*]] = pc.input tokens {{.*}} #pc.place<[_, _] root(dp)>>
// NAIVE-NEXT: %[[B:.*]] = pc.broadcast %[[W]] on ["dp"]
// NAIVE-NEXT: %[[S:.*]] = pc.scatter %[[T]] dim 0 on ["dp"]
// NAIVE-NEXT: pc.embedding %[[B]], %[[S]]

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
