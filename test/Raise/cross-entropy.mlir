// The loss of a target is computed from the logarithm of the sum or from normalized logits, with or without a maximum.
// One form is JAX's log_softmax, which subtracts the maximum from the logits and never adds it again.
// RUN: pc-opt %s --pc-raise -o %t.raised && FileCheck %s < %t.raised
// RUN: pc-opt %t.raised --pc-differentiate --pc-check-gradients -o /dev/null | FileCheck %s --check-prefix=NUMBERS
// CHECK: pc.cross_entropy %[[LOGITS:.*]], %[[TARGETS:.*]] :
// CHECK: %[[NLL:.*]] = pc.cross_entropy %[[LOGITS]], %[[TARGETS]] :
// CHECK: pc.scale %[[NLL]] by -1.0
// CHECK: %[[JAX:.*]] = pc.cross_entropy %[[LOGITS]], %[[TARGETS]] :
// CHECK: pc.scale %[[JAX]] by -1.0
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
  %loss = pc.einsum "b ->" %thrice : (tensor<4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
