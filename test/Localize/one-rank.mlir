// RUN: pc-opt %s --pc-localize --pc-verify-local | FileCheck %s

// A single rank needs neither a mesh nor placements. Leaves record their layout all the same.
// CHECK-LABEL: func.func @step
func.func @step() {
  // CHECK: pc.parameter "w" {{.*}} global [96, 64] layout <[_, _]> : tensor<96x64xf32>
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [96, 64], start = [0, 0], size = [96, 64]> : tensor<96x64xf32>
  // CHECK: pc.input tokens {{.*}} global [4, 32] layout <[_, _]>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x32xi32>
  // CHECK: pc.embedding %{{.*}}, %{{.*}} : (tensor<96x64xf32>, tensor<4x32xi32>) -> tensor<4x32x64xf32>
  %x = pc.embedding %w, %tokens : (tensor<96x64xf32>, tensor<4x32xi32>) -> tensor<4x32x64xf32>
  return
}
