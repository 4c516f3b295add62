// ZeRO-3 splits parameters and gathers them before their readers. The batch is split.
// RUN: pc-opt %s --pc-set-mesh=mesh=dp=2 --pc-zero=stage=3 --pc-verify-placed | FileCheck %s
// CHECK: %[[W:.*]] = pc.parameter "w" {{.*}} : tensor<16x8xf32, #pc.place<[dp, _]>>
// CHECK: %[[UP:.*]] = pc.parameter "up" {{.*}} : tensor<8x16xf32, #pc.place<[_, dp]>>
// CHECK: pc.input tokens {{.*}} : tensor<4x8xi32, #pc.place<[dp, _]>>
// CHECK-NEXT: pc.all_gather %[[W]] dim 0 on ["dp"]
// CHECK-NEXT: pc.embedding {{.*}} -> tensor<4x8x8xf32, #pc.place<[dp, _, _]>>
// CHECK-NEXT: pc.all_gather %[[UP]] dim 1 on ["dp"]

// ZeRO-1 and ZeRO-2 keep parameters whole. Only gradients and optimizer states are split (test/Shard/zero.mlir).
// RUN: pc-opt %s --pc-set-mesh=mesh=dp=2 --pc-zero=stage=1 --pc-verify-placed | FileCheck %s --check-prefix=ONE
// ONE: pc.parameter "w"
// ONE: pc.embedding {{.*}} -> tensor<4x8x8xf32, #pc.place<[dp, _, _]>>

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
