// Products are bf16, and their weights are cast once, before the accumulation. The table, the sums of norms and the
// loss stay f32. The residual stream begins with rows of the table, which are rounded.
// RUN: pc-opt %s --pc-differentiate --pc-mixed-precision | FileCheck %s
// CHECK: %[[W:.*]] = pc.parameter "w" {{.*}} : tensor<16x8xf32>
// CHECK: %[[NARROW:.*]] = pc.cast %[[W]] : (tensor<16x8xf32>) -> tensor<16x8xbf16>
// CHECK: pc.accumulate
// CHECK: pc.embedding {{.*}} : (tensor<16x8xf32>, tensor<4x4xi32>) -> tensor<4x4x8xbf16>
// CHECK: %[[N:.*]], %{{.*}} = pc.rms_norm {{.*}} -> (tensor<4x4x8xbf16>, tensor<4x4xf32>)
// CHECK: pc.einsum "b s e, v e -> b s v" %[[N]], %[[NARROW]] : (tensor<4x4x8xbf16>, tensor<16x8xbf16>)

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
