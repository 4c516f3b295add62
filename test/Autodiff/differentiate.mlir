// RUN: pc-opt %s --pc-differentiate="microbatches=2" | FileCheck %s
// RUN: pc-opt %s --pc-pad-vocabulary=multiple=4 --pc-differentiate=optimizer=sgd | FileCheck %s --check-prefix=PAD
// RUN: not pc-opt %s --pc-differentiate=microbatches=3 2>&1 | FileCheck %s --check-prefix=BATCH

pc.program "toy" batch 4 sequence 8 vocabulary 11 config "{}"

// The batch of 4 becomes two microbatches of 2, in every type of the body and nowhere else.
// CHECK-LABEL: func.func @step
// CHECK: %[[W:.*]] = pc.parameter "w" dims ["vocab", "embed"]
// CHECK: %[[T:.*]] = pc.input tokens dims ["microbatch", "batch", "sequence"] : tensor<2x2x8xi32>
// CHECK: pc.accumulate (%[[ARG:.*]] = %[[T]] : tensor<2x2x8xi32> -> tensor<2x8xi32>
// CHECK: pc.embedding %[[W]], %[[ARG]]
// CHECK: pc.output logits "logits" %{{.*}} : tensor<2x8x11xf32>
// CHECK: pc.reduce_max "x0 x1 v -> x0 x1"
// CHECK: pc.sum_exp
// CHECK: pc.pick
// The backward pass comes after the seed. The tied table gets the sum of its two gradients.
// CHECK: pc.seed
// CHECK: pc.cross_entropy_grad
// CHECK: pc.einsum "b s v, b s e -> v e"
// CHECK: pc.embedding_grad
// CHECK: pc.add
// CHECK: pc.yield
// CHECK: pc.output loss "loss"
// CHECK: pc.output gradient "w"
// CHECK: pc.output grad_norm
// CHECK: pc.clip_coefficient
// CHECK: pc.adamw
// CHECK: pc.update "w"
// CHECK: pc.update "exp_avg" of "w"

// The vocabulary of 11 words is padded to 12. The loss reads -1e30 at the twelfth, and the true shapes are recorded.
// PAD: pc.parameter "w"
// PAD-SAME: valid [11, 6] : tensor<12x6xf32>
// PAD: pc.output logits "logits" %{{.*}} valid [4, 8, 11] : tensor<4x8x12xf32>
// PAD: pc.mask_padding %{{.*}} valid 11 value -1.000000e+30
// PAD: pc.mask_padding %{{.*}} valid 11 value 0.000000e+00
// PAD: pc.sgd

// BATCH: error: a batch of 4 does not divide into 3 microbatches; the nearest numbers that do are 2 or 4
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [11, 6], start = [0, 0], size = [11, 6]> : tensor<11x6xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32>
  %targets = pc.input targets dims ["batch", "sequence"] : tensor<4x8xi32>
  %x = pc.embedding %w, %tokens : (tensor<11x6xf32>, tensor<4x8xi32>) -> tensor<4x8x6xf32>
  %logits = pc.einsum "b s e, v e -> b s v" %x, %w : (tensor<4x8x6xf32>, tensor<11x6xf32>) -> tensor<4x8x11xf32>
  pc.output logits "logits" %logits : tensor<4x8x11xf32>
  %nll = pc.cross_entropy %logits, %targets : (tensor<4x8x11xf32>, tensor<4x8xi32>) -> tensor<4x8xf32>
  %sum = pc.einsum "b s ->" %nll : (tensor<4x8xf32>) -> tensor<f32>
  %loss = pc.scale %sum by 3.125e-02 : (tensor<f32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
