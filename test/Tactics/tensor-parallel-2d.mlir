// 2D: weights and activations are split over rows and columns; a linear gathers its activation on columns and its weight on rows.
// RUN: pc-opt %s --pc-differentiate --pc-decompose-norms --pc-set-mesh=mesh=row=2,col=2 --pc-tensor-parallel="form=2d axis=row,col" --pc-verify-placed | FileCheck %s
// CHECK: pc.parameter "w" {{.*}} : tensor<16x8xf32, #pc.place<[col, row]>>
// CHECK: %[[W:.*]] = pc.all_gather {{.*}} dim 1 on ["row"]
// CHECK-NEXT: %[[X:.*]] = pc.embedding %[[W]], {{.*}} sum(col)>>
// CHECK-NEXT: pc.reduce_scatter sum %[[X]] dim 2 on ["col"] {{.*}} -> tensor<4x4x8xf32, #pc.place<[row, _, col]>>
// CHECK: %[[N:.*]] = pc.all_gather {{.*}} dim 2 on ["col"]
// CHECK-NEXT: pc.einsum "b s e, v e -> b s v" %[[N]], %[[W]] {{.*}} -> tensor<4x4x16xf32, #pc.place<[row, _, col]>>

// 2.5D also splits the batch over depth. Each coordinate of depth has a copy of the weights.
// RUN: pc-opt %s --pc-differentiate --pc-decompose-norms --pc-set-mesh=mesh=depth=2,row=2,col=2 --pc-tensor-parallel="form=2.5d axis=depth,row,col" --pc-verify-placed \
// RUN:   | FileCheck %s --check-prefix=DEPTH
// DEPTH: pc.parameter "w" {{.*}} : tensor<16x8xf32, #pc.place<[col, row]>>
// DEPTH: pc.reduce_scatter sum {{.*}} dim 2 on ["col"] {{.*}} -> tensor<4x4x8xf32, #pc.place<[(depth, row), _, col]>>

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
