// The padding row gets no gradient from the embedding, but does get the gradient of a tied head.
// RUN: pc-opt %s --pc-pad-vocabulary=multiple=4 --pc-differentiate | FileCheck %s
// RUN: pc-opt %s --pc-differentiate --pc-localize --pc-interpret=print=values -o /dev/null | FileCheck %s --check-prefix=VALUES

// CHECK: pc.parameter "w" {{.*}} init <normal, 2.000000e-02, zero_row = 0>
// CHECK: pc.embedding %{{.*}}, %{{.*}} padding 0 :
// CHECK: %[[HEAD:.*]] = pc.einsum "b s v, b s e -> v e"
// CHECK: %[[ROWS:.*]] = pc.embedding_grad %{{.*}}, %{{.*}} padding 0 :
// CHECK: pc.add {{.*}}%[[ROWS]]

// The only row of this table is the padding row. The part of its gradient from the embedding is zero, and the whole is
// not.
// VALUES: pc.embedding_grad: 1x6 max 0
// VALUES: pc.add: 1x6 max {{0\.|[1-9]}}

pc.program "toy" batch 4 sequence 8 vocabulary 1 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02, zero_row = 0>
    source <"w", shape = [1, 6], start = [0, 0], size = [1, 6]> : tensor<1x6xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32>
  %x = pc.embedding %w, %tokens padding 0 : (tensor<1x6xf32>, tensor<4x8xi32>) -> tensor<4x8x6xf32>
  %logits = pc.einsum "b s e, v e -> b s v" %x, %w : (tensor<4x8x6xf32>, tensor<1x6xf32>) -> tensor<4x8x1xf32>
  %loss = pc.einsum "b s v, b s v ->" %logits, %logits : (tensor<4x8x1xf32>, tensor<4x8x1xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
