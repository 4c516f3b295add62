// RUN: pc-opt %S/Inputs/mlp.mlir --pc-differentiate=microbatches=2 -o %t.step
// RUN: pc-opt %t.step --pc-set-mesh=mesh=tp=2 --pc-tensor-parallel --pc-verify-placed -o %t.placed
// RUN: FileCheck %s < %t.placed
// RUN: pc-opt %t.placed --pc-erase-placements | diff %t.step -
// RUN: not pc-opt %t.step --pc-set-mesh=mesh=tp=2 --pc-tensor-parallel="form=2d" 2>&1 | FileCheck %s --check-prefix=FORM
// RUN: not pc-opt %t.step --pc-set-mesh=mesh=tp=16 --pc-tensor-parallel 2>&1 | FileCheck %s --check-prefix=DIVIDE

// FORM: error: pc-tensor-parallel: form '2d' needs 2 axes, got 'tp'
// DIVIDE: error: pc-tensor-parallel: 'up': dim "ffn" of size 24 in 'tensor<6x24xf32>' does not divide by tp=16; nearest legal sizes of the dim: 16 and 32

// Weights are split by name.
// CHECK-DAG: pc.parameter "wte" {{.*}} : tensor<512x6xf32, #pc.place<[tp, _]>>
// CHECK-DAG: pc.parameter "up" {{.*}} : tensor<6x24xf32, #pc.place<[_, tp]>>
// CHECK-DAG: pc.parameter "down" {{.*}} : tensor<24x6xf32, #pc.place<[tp, _]>>

// In a vocabulary-parallel embedding, every rank looks up the rows of its block, and the sum over ranks is the result.
// CHECK: %[[E:.*]] = pc.embedding {{.*}} -> tensor<4x8x6xf32, #pc.place<[_, _, _] sum(tp)>>
// CHECK-NEXT: %[[X:.*]] = pc.all_reduce sum %[[E]] on ["tp"]
// A column-parallel linear and a row-parallel linear need one all_reduce after the pair.
// CHECK-NEXT: %[[H:.*]] = pc.einsum "b s e, e f -> b s f" %[[X]], {{.*}} -> tensor<4x8x24xf32, #pc.place<[_, _, tp]>>
// CHECK-NEXT: %[[A:.*]] = pc.activation silu %[[H]]
// CHECK-NEXT: %[[P:.*]] = pc.einsum "b s f, f e -> b s e" %[[A]], {{.*}} -> tensor<4x8x6xf32, #pc.place<[_, _, _] sum(tp)>>
// CHECK-NEXT: %[[Y:.*]] = pc.all_reduce sum %[[P]] on ["tp"]
// CHECK-NEXT: %[[Z:.*]] = pc.add %[[X]], %[[Y]]
// The loss has a split vocabulary. The maximum and the sum of exponentials are reduced; the picked logit is reduced
// only as a part of the loss.
// CHECK-NEXT: %[[L:.*]] = pc.einsum "b s e, v e -> b s v" %[[Z]], {{.*}} -> tensor<4x8x512xf32, #pc.place<[_, _, tp]>>
// CHECK-NEXT: pc.output logits "logits" %[[L]]
// CHECK: pc.reduce_max
// CHECK-NEXT: pc.all_reduce max {{.*}} -> tensor<4x8xf32, #pc.place<[_, _]>>
// CHECK: pc.sum_exp
// CHECK: pc.all_reduce sum {{.*}} -> tensor<4x8xf32, #pc.place<[_, _]>>
// CHECK: pc.mask
// CHECK: pc.scale {{.*}} -> tensor<f32, #pc.place<[] sum(tp)>>
// In the backward pass, the input gradients of the head and of the column-parallel linear are reduced once for all
// readers.
// CHECK: %[[DZ:.*]] = pc.einsum "b s v, v e -> b s e" {{.*}} -> tensor<4x8x6xf32, #pc.place<[_, _, _] sum(tp)>>
// CHECK: pc.all_reduce sum %[[DZ]] on ["tp"]
// CHECK: %[[DH:.*]] = pc.einsum "b s f, e f -> b s e" {{.*}} -> tensor<4x8x6xf32, #pc.place<[_, _, _] sum(tp)>>
// CHECK: %[[R:.*]] = pc.all_reduce sum %[[DH]] on ["tp"]
// CHECK: %[[DX:.*]] = pc.add {{.*}}, %[[R]]
// CHECK: pc.embedding_grad %[[DX]], {{.*}} -> tensor<512x6xf32, #pc.place<[tp, _]>>
// CHECK: pc.yield
// Gradients are split as their weights are. Only the loss and the norm are still reduced.
// CHECK-NEXT: } : tensor<f32, #pc.place<[] sum(tp)>>, tensor<512x6xf32, #pc.place<[tp, _]>>
// CHECK: pc.all_reduce sum %{{.*}} on ["tp"] : (tensor<f32, {{.*}}
// CHECK: pc.all_reduce sum %{{.*}} on ["tp"] : (tensor<f32, {{.*}}
// CHECK-NOT: {{pc\.(all_reduce|all_gather|reduce_scatter|all_to_all)}}
