// The loss of a target is computed from the logarithm of the sum or from normalized logits, with or without a maximum.
// One form is JAX's log_softmax, which subtracts the maximum from the logits and never adds it again. The last loss
// uses a log_softmax along the first dim, which is transposed for the pick.
// RUN: pc-opt %s --pc-raise -o %t.raised && FileCheck %s < %t.raised
// RUN: pc-opt %t.raised --pc-differentiate --pc-check-gradients -o /dev/null | FileCheck %s --check-prefix=NUMBERS
// CHECK: pc.cross_entropy %[[LOGITS:.*]], %[[TARGETS:.*]] :
// CHECK: %[[NLL:.*]] = pc.cross_entropy %[[LOGITS]], %[[TARGETS]] :
// CHECK: pc.scale %[[NLL]] by -1.0
// CHECK: %[[JAX:.*]] = pc.cross_entropy %[[LOGITS]], %[[TARGETS]] :
// CHECK: pc.scale %[[JAX]] by -1.0
// CHECK: %[[SHIFTED:.*]] = pc.sub
// CHECK: %[[ROWS:.*]] = pc.einsum "i0 i1 -> i1 i0" %[[COLUMNS:.*]] :
// CHECK: %[[LSE:.*]] = pc.logsumexp %[[ROWS]] :
// CHECK: %[[WIDE:.*]] = pc.einsum "i1 -> i0 i1" %[[LSE]] : (tensor<4xf32>) -> tensor<5x4xf32>
// CHECK: pc.sub %[[COLUMNS]], %[[WIDE]] :
// CHECK: %[[LAST:.*]] = pc.cross_entropy %[[ROWS]], %[[TARGETS]] :
// CHECK: pc.scale %[[LAST]] by -1.0
// CHECK-NOT: pc.{{exp|log|reduce_max|pick|logsumexp}} 
// NUMBERS: gradient w: {{.*}} largest relative difference {{.*}}e-{{0[6-9]|1.}}
func.func @model() {
  %x = pc.input data "x" dims ["batch", "embed"] : tensor<4x8xf32>
  %targets = pc.input data "y" below 5 dims ["batch"] : tensor<4xi32>
  %w = pc.parameter "w" dims ["embed", "vocab"] init <normal, 0.5> source <"w", shape = [8, 5], start = [0, 0], size = [8, 5]> : tensor<8x5xf32>
  %logits = pc.einsum "b e, e v -> b v" %x, %w : (tensor<4x8xf32>, tensor<8x5xf32>) -> tensor<4x5xf32>
  %max = pc.reduce_max "b v -> b" %logits : (tensor<4x5xf32>) -> tensor<4xf32>
  %maxes = pc.einsum "b -> b v" %max : (tensor<4xf32>) -> tensor<4x5xf32>
  %less = pc.sub %logits, %maxes : (tensor<4x5xf32>, tensor<4x5xf32>) -> tensor<4x5xf32>
  %e = pc.exp %less : (tensor<4x5xf32>) -> tensor<4x5xf32>
  %sum = pc.einsum "b v -> b" %e : (tensor<4x5xf32>) -> tensor<4xf32>
  %log = pc.log %sum : (tensor<4xf32>) -> tensor<4xf32>
  %lse = pc.add %max, %log : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %hit = pc.pick %logits, %targets : (tensor<4x5xf32>, tensor<4xi32>) -> tensor<4xf32>
  %nll = pc.sub %lse, %hit : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %lses = pc.einsum "b -> b v" %lse : (tensor<4xf32>) -> tensor<4x5xf32>
  %normal = pc.sub %logits, %lses : (tensor<4x5xf32>, tensor<4x5xf32>) -> tensor<4x5xf32>
  %other = pc.pick %normal, %targets : (tensor<4x5xf32>, tensor<4xi32>) -> tensor<4xf32>
  %twice = pc.sub %nll, %other : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %logs = pc.einsum "b -> b v" %log : (tensor<4xf32>) -> tensor<4x5xf32>
  %shifted = pc.sub %less, %logs : (tensor<4x5xf32>, tensor<4x5xf32>) -> tensor<4x5xf32>
  %third = pc.pick %shifted, %targets : (tensor<4x5xf32>, tensor<4xi32>) -> tensor<4xf32>
  %thrice = pc.sub %twice, %third : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %columns = pc.einsum "b e, e v -> v b" %x, %w : (tensor<4x8xf32>, tensor<8x5xf32>) -> tensor<5x4xf32>
  %top = pc.reduce_max "v b -> b" %columns : (tensor<5x4xf32>) -> tensor<4xf32>
  %tops = pc.einsum "b -> v b" %top : (tensor<4xf32>) -> tensor<5x4xf32>
  %below = pc.sub %columns, %tops : (tensor<5x4xf32>, tensor<5x4xf32>) -> tensor<5x4xf32>
  %exps = pc.exp %below : (tensor<5x4xf32>) -> tensor<5x4xf32>
  %total = pc.einsum "v b -> b" %exps : (tensor<5x4xf32>) -> tensor<4xf32>
  %ln = pc.log %total : (tensor<4xf32>) -> tensor<4xf32>
  %lns = pc.einsum "b -> v b" %ln : (tensor<4xf32>) -> tensor<5x4xf32>
  %soft = pc.sub %below, %lns : (tensor<5x4xf32>, tensor<5x4xf32>) -> tensor<5x4xf32>
  %turned = pc.einsum "v b -> b v" %soft : (tensor<5x4xf32>) -> tensor<4x5xf32>
  %fourth = pc.pick %turned, %targets : (tensor<4x5xf32>, tensor<4xi32>) -> tensor<4xf32>
  %four = pc.sub %thrice, %fourth : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %both = pc.einsum "b v, v b -> b" %normal, %soft : (tensor<4x5xf32>, tensor<5x4xf32>) -> tensor<4xf32>
  %all = pc.add %four, %both : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %loss = pc.einsum "b ->" %all : (tensor<4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
