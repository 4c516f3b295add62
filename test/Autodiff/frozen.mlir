// A frozen parameter is read and never changed: gradients pass through it, and it has none itself.
// RUN: pc-opt %s --split-input-file --verify-diagnostics --pc-differentiate -o /dev/null
// RUN: sed '/^.. -----$/,$d' %s | pc-opt --pc-differentiate | FileCheck %s
// RUN: sed '/^.. -----$/,$d' %s | pc-opt --pc-differentiate --pc-verify-step -o %t.step
// RUN: sed '/^.. -----$/,$d' %s | pc-opt --pc-differentiate --pc-check-gradients -o /dev/null | FileCheck %s --check-prefix=NUMBERS

// Nothing below the first trained leaf has a gradient: neither the table nor the product with "in".
// CHECK: pc.parameter "table" frozen dims
// CHECK: pc.parameter "in" frozen dims
// CHECK: pc.parameter "a" dims
// CHECK: pc.parameter "base" frozen dims
// CHECK: pc.seed
// CHECK-NOT: pc.embedding_grad
// The product with the base passes its gradient on to "a", but the base has no gradient.
// CHECK: %[[DY:.*]] = pc.einsum {{.*}} -> tensor<4x8x6xf32>
// CHECK-NEXT: %[[DA:.*]] = pc.einsum "b s h, b s e -> e h"
// CHECK-NEXT: pc.yield %{{.*}}, %[[DA]] : tensor<f32>, tensor<6x6xf32>
// CHECK: pc.output gradient "a"
// CHECK-NOT: pc.output gradient
// CHECK: pc.state "exp_avg" of "a"
// CHECK-NOT: pc.state "exp_avg"
// CHECK: pc.update "a"
// CHECK-NOT: pc.update "{{table|in|base}}"
// NUMBERS: gradient a: {{.*}} elements
// NUMBERS-NOT: gradient

pc.program "toy" batch 4 sequence 8 vocabulary 11 config "{}"
func.func @model() {
  %table = pc.parameter "table" frozen dims ["vocab", "embed"] init <normal, 2.0e-02> source <"table", shape = [11, 6], start = [0, 0], size = [11, 6]> : tensor<11x6xf32>
  %in = pc.parameter "in" frozen dims ["embed", "embed2"] init <normal, 2.0e-02> source <"in", shape = [6, 6], start = [0, 0], size = [6, 6]> : tensor<6x6xf32>
  %a = pc.parameter "a" dims ["embed", "hidden"] init <normal, 2.0e-02> source <"a", shape = [6, 6], start = [0, 0], size = [6, 6]> : tensor<6x6xf32>
  %base = pc.parameter "base" frozen dims ["hidden", "vocab"] init <normal, 2.0e-02> source <"base", shape = [6, 11], start = [0, 0], size = [6, 11]> : tensor<6x11xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32>
  %targets = pc.input targets dims ["batch", "sequence"] : tensor<4x8xi32>
  %x = pc.embedding %table, %tokens : (tensor<11x6xf32>, tensor<4x8xi32>) -> tensor<4x8x6xf32>
  %y = pc.einsum "b s e, e f -> b s f" %x, %in : (tensor<4x8x6xf32>, tensor<6x6xf32>) -> tensor<4x8x6xf32>
  %z = pc.einsum "b s e, e h -> b s h" %y, %a : (tensor<4x8x6xf32>, tensor<6x6xf32>) -> tensor<4x8x6xf32>
  %logits = pc.einsum "b s h, h v -> b s v" %z, %base : (tensor<4x8x6xf32>, tensor<6x11xf32>) -> tensor<4x8x11xf32>
  %nll = pc.cross_entropy %logits, %targets : (tensor<4x8x11xf32>, tensor<4x8xi32>) -> tensor<4x8xf32>
  %sum = pc.einsum "b s ->" %nll : (tensor<4x8xf32>) -> tensor<f32>
  %loss = pc.scale %sum by 3.125e-02 : (tensor<f32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// expected-error @below {{the model has no parameter to train: each is frozen, or is read only by ops without a gradient}}
func.func @model() {
  %w = pc.parameter "w" frozen dims ["a"] init <fill, 1.0> source <"w", shape = [8], start = [0], size = [8]> : tensor<8xf32>
  %x = pc.input tokens dims ["batch", "a"] : tensor<4x8xf32>
  %loss = pc.einsum "b a, a ->" %x, %w : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

func.func @model() {
  %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [8], start = [0], size = [8]> : tensor<8xf32>
  // expected-error @below {{'unused' is frozen, and no output depends on it; leave it out}}
  %u = pc.parameter "unused" frozen dims ["a"] init <fill, 1.0> source <"unused", shape = [8], start = [0], size = [8]> : tensor<8xf32>
  %v = pc.scale %u by 2.0 : (tensor<8xf32>) -> tensor<8xf32>
  %x = pc.input tokens dims ["batch", "a"] : tensor<4x8xf32>
  %loss = pc.einsum "b a, a ->" %x, %w : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
