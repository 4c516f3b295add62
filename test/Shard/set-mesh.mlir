// RUN: pc-opt %s --pc-set-mesh="mesh=dp=2,tp=4" | FileCheck %s
// RUN: pc-opt %s -o %t.step
// RUN: pc-opt %s --pc-set-mesh="mesh=dp=2,tp=4" --pc-verify-placed --pc-erase-placements | diff %t.step -
// RUN: not pc-opt %s --pc-set-mesh="mesh=dp=2,dp=4" 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not pc-opt %s --pc-set-mesh="mesh=dp=0" 2>&1 | FileCheck %s --check-prefix=SIZE
// RUN: not pc-opt %s --pc-set-mesh="mesh=dp:2" 2>&1 | FileCheck %s --check-prefix=SYNTAX
// RUN: not pc-opt %s --pc-set-mesh="mesh=dp=2" --pc-set-mesh="mesh=tp=2" 2>&1 | FileCheck %s --check-prefix=MESH

// RUN: echo 'module {}' | pc-opt --pc-set-mesh="mesh=dp=2" | FileCheck %s --check-prefix=EMPTY
// EMPTY: pc.mesh <dp = 2>

// TWICE: error: pc-set-mesh: mesh axis 'dp' is named twice
// SIZE: error: pc-set-mesh: bad mesh entry 'dp=0'; expected axis=size, as in dp=2,tp=2
// SYNTAX: error: pc-set-mesh: bad mesh entry 'dp:2'; expected axis=size, as in dp=2,tp=2
// MESH: error: pc-set-mesh: the module already has a mesh

// The mesh comes first. Results and block arguments are whole on every rank.
// CHECK: module
// CHECK-NEXT: pc.mesh <dp = 2, tp = 4>
// CHECK-NEXT: func.func @step
func.func @step() {
  // CHECK: pc.input tokens {{.*}} : tensor<2x4x8xi32, #pc.place<[_, _, _]>>
  %tokens = pc.input tokens dims ["microbatch", "batch", "sequence"] : tensor<2x4x8xi32>
  // CHECK: pc.parameter "w" {{.*}} : tensor<16x6xf32, #pc.place<[_, _]>>
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [16, 6], start = [0, 0], size = [16, 6]> : tensor<16x6xf32>
  // CHECK: pc.accumulate (%{{.*}} = %{{.*}} : tensor<2x4x8xi32, #pc.place<[_, _, _]>> -> tensor<4x8xi32, #pc.place<[_, _]>>)
  %r = pc.accumulate (%t = %tokens : tensor<2x4x8xi32> -> tensor<4x8xi32>) {
    %x = pc.embedding %w, %t : (tensor<16x6xf32>, tensor<4x8xi32>) -> tensor<4x8x6xf32>
    // CHECK: pc.einsum "b s e ->" {{.*}} -> tensor<f32, #pc.place<[]>>
    %s = pc.einsum "b s e ->" %x : (tensor<4x8x6xf32>) -> tensor<f32>
    pc.yield %s : tensor<f32>
  } : tensor<f32>
  pc.output loss "loss" %r : tensor<f32>
  return
}
