// 3D: a linear gathers weights on i and activations on l, and scatters its partial sums over j along the batch.
// RUN: pc-opt %s --pc-differentiate --pc-decompose-norms --pc-set-mesh=mesh=i=2,j=2,l=2 --pc-tensor-parallel="form=3d axis=i,j,l" --pc-verify-placed | FileCheck %s
// CHECK: pc.parameter "w" {{.*}} : tensor<16x8xf32, #pc.place<[(l, i), j]>>
// CHECK: %[[W:.*]] = pc.all_gather {{.*}} dim 0 on ["i"]
// CHECK-NEXT: %[[X:.*]] = pc.embedding %[[W]], {{.*}} -> tensor<4x4x8xf32, #pc.place<[i, _, j] sum(l)>>
// CHECK-NEXT: pc.reduce_scatter sum %[[X]] dim 0 on ["l"] {{.*}} -> tensor<4x4x8xf32, #pc.place<[(i, l), _, j]>>
// CHECK: %[[N:.*]] = pc.all_gather {{.*}} dim 0 on ["l"]
// CHECK-NEXT: %[[L:.*]] = pc.einsum "b s e, v e -> b s v" %[[N]], %[[W]] {{.*}} -> tensor<4x4x16xf32, #pc.place<[i, _, l] sum(j)>>
// CHECK-NEXT: pc.reduce_scatter sum %[[L]] dim 0 on ["j"] {{.*}} -> tensor<4x4x16xf32, #pc.place<[(i, j), _, l]>>

pc.program "norm" batch 4 sequence 4 vocabulary 16 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %g = pc.parameter "g" dims ["embed"] init <fill, 1.0> source <"g", shape = [8], start = [0], size = [8]> : tensor<8xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x4xi32>
  %targets = pc.input targets dims ["batch", "sequence"] : tensor<4x4xi32>
  %x = pc.embedding %w, %tokens : (tensor<16x8xf32>, tensor<4x4xi32>) -> tensor<4x4x8xf32>
  %n, %r = pc.rms_norm %x, %g eps 1.0e-05 : (tensor<4x4x8xf32>, tensor<8xf32>) -> (tensor<4x4x8xf32>, tensor<4x4xf32>)
  %l = pc.einsum "b s e, v e -> b s v" %n, %w : (tensor<4x4x8xf32>, tensor<16x8xf32>) -> tensor<4x4x16xf32>
  %nll = pc.cross_entropy %l, %targets : (tensor<4x4x16xf32>, tensor<4x4xi32>) -> tensor<4x4xf32>
  %sum = pc.einsum "b s ->" %nll : (tensor<4x4xf32>) -> tensor<f32>
  pc.output loss "loss" %sum : tensor<f32>
  return
}
