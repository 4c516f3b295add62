// Padding of the vocabulary must not change a sum, forward or backward. An op whose sum it would change is refused.
// RUN: pc-opt %s --pc-pad-vocabulary=multiple=4 -split-input-file -verify-diagnostics | FileCheck %s

// The logits are read by the loss, and by a product of two operands that are 0 at the padding.
// CHECK: tensor<12x8xf32>
func.func @model(%x: tensor<4x8xf32>, %targets: tensor<4xi32>) {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [11, 8], start = [0, 0], size = [11, 8]> : tensor<11x8xf32>
  %logits = pc.einsum "b e, v e -> b v" %x, %w : (tensor<4x8xf32>, tensor<11x8xf32>) -> tensor<4x11xf32>
  %capped = pc.activation tanh %logits : (tensor<4x11xf32>) -> tensor<4x11xf32>
  %squares = pc.einsum "b v, b v -> b" %capped, %logits : (tensor<4x11xf32>, tensor<4x11xf32>) -> tensor<4xf32>
  %nll = pc.cross_entropy %capped, %targets : (tensor<4x11xf32>, tensor<4xi32>) -> tensor<4xf32>
  return
}

// -----

// The padding would add e^0 = 1 to the sum.
func.func @model(%x: tensor<4x8xf32>) {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [11, 8], start = [0, 0], size = [11, 8]> : tensor<11x8xf32>
  %logits = pc.einsum "b e, v e -> b v" %x, %w : (tensor<4x8xf32>, tensor<11x8xf32>) -> tensor<4x11xf32>
  %e = pc.exp %logits : (tensor<4x11xf32>) -> tensor<4x11xf32>
  // expected-error @below {{pc-pad-vocabulary: 'pc.einsum' op would include the padding that makes the vocabulary a multiple of 4; use a model whose vocabulary is such a multiple, or a plan that does not split the vocabulary}}
  %sum = pc.einsum "b v -> b" %e : (tensor<4x11xf32>) -> tensor<4xf32>
  return
}

// -----

// The sum is right, but the gradient of the padding would be 1.
func.func @model(%x: tensor<4x8xf32>) {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [11, 8], start = [0, 0], size = [11, 8]> : tensor<11x8xf32>
  // expected-error @below {{pc-pad-vocabulary: 'pc.einsum' op would include the padding}}
  %sum = pc.einsum "v e -> e" %w : (tensor<11x8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @model(%x: tensor<4x8xf32>) {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [11, 8], start = [0, 0], size = [11, 8]> : tensor<11x8xf32>
  %logits = pc.einsum "b e, v e -> b v" %x, %w : (tensor<4x8xf32>, tensor<11x8xf32>) -> tensor<4x11xf32>
  // expected-error @below {{pc-pad-vocabulary: 'pc.softmax' op would include the padding}}
  %p = pc.softmax %logits : (tensor<4x11xf32>) -> tensor<4x11xf32>
  return
}

// -----

func.func @model(%x: tensor<4x8xf32>) {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [11, 8], start = [0, 0], size = [11, 8]> : tensor<11x8xf32>
  %logits = pc.einsum "b e, v e -> v b" %x, %w : (tensor<4x8xf32>, tensor<11x8xf32>) -> tensor<11x4xf32>
  // expected-error @below {{pc-pad-vocabulary: 'pc.reshape' op would include the padding}}
  %all = pc.reshape "v b -> (v b)" %logits : (tensor<11x4xf32>) -> tensor<44xf32>
  return
}
