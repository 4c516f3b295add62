// Five programs of one model read the same parameters and tokens, so all print the same digest.
// RUN: pc-opt %s --pc-interpret -o /dev/null | FileCheck %s
// RUN: pc-opt %s --pc-differentiate --pc-interpret -o /dev/null | FileCheck %s --check-prefixes=CHECK,STEP
// RUN: pc-opt %s --pc-differentiate=microbatches=2 --pc-interpret -o /dev/null | FileCheck %s --check-prefixes=CHECK,STEP
// RUN: pc-opt %s --pc-pad-vocabulary=multiple=4 --pc-differentiate=microbatches=4 --pc-interpret -o /dev/null | FileCheck %s --check-prefixes=CHECK,STEP
// RUN: pc-opt %s --pc-pad-vocabulary=multiple=8 --pc-differentiate --pc-localize --pc-interpret -o /dev/null | FileCheck %s --check-prefixes=CHECK,STEP
// Another seed gives other values.
// RUN: pc-opt %s --pc-interpret=seed=2 -o /dev/null | FileCheck %s --check-prefix=SEED
// RUN: pc-opt %s --pc-interpret=print=values -o /dev/null | FileCheck %s --check-prefix=VALUES
// RUN: not pc-opt %s --pc-interpret=print=some 2>&1 | FileCheck %s --check-prefix=PRINT

// CHECK: logits logits: 4x8x11 max 8.40547208{{.*}} sum 7.27556421{{.*}} mix 4.49486985
// CHECK-NEXT: loss loss: scalar max 2.39403293
// STEP-NEXT: gradient w: 11x6 max 4.215916966e-02 sum -3.876705018e-02 mix -9.90366687
// STEP-NEXT: grad_norm grad_norm: scalar max 1.666903141e-01
// STEP-NEXT: update w: 11x6 max 6.488980128e-01 sum -1.123090371e+00
// STEP-NEXT: update exp_avg of w: 11x6 max 9.051664883e-03 sum 3.225428563e-01
// STEP-NEXT: update exp_avg_sq of w: 11x6 max 9.851971478e-03 sum 3.501330205e-01
// SEED-NOT: 8.40547208
// VALUES: w = pc.parameter: 11x6 max
// VALUES: embedding = pc.embedding: 4x8x6 max
// VALUES: cross_entropy = pc.cross_entropy: 4x8 max
// PRINT: error: pc-interpret: unknown print 'some' (outputs, values, none)

pc.program "toy" batch 4 sequence 8 vocabulary 11 config "{}"
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
