// Values that are almost such an op stay in pieces.
// RUN: pc-opt %s --split-input-file --pc-raise | FileCheck %s
// CHECK-NOT: pc.{{rms_norm|layer_norm|softmax|logsumexp|attention|cross_entropy}} 

// The mean divides by another number of elements.
func.func @model() {
  %x = pc.input data "x" dims ["batch", "embed"] : tensor<2x8xf32>
  %eps = pc.constant 1.0e-03 : tensor<f32>
  %epses = pc.einsum "-> b" %eps : (tensor<f32>) -> tensor<2xf32>
  %ss = pc.einsum "b e, b e -> b" %x, %x : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2xf32>
  %ms = pc.scale %ss by 0.25 : (tensor<2xf32>) -> tensor<2xf32>
  %me = pc.add %ms, %epses : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %root = pc.sqrt %me : (tensor<2xf32>) -> tensor<2xf32>
  %rstd = pc.recip %root : (tensor<2xf32>) -> tensor<2xf32>
  %n = pc.einsum "b, b e -> b e" %rstd, %x : (tensor<2xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  %loss = pc.einsum "b e ->" %n : (tensor<2x8xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// The root of one value multiplies another value, and e^x of one value is divided by the sum for another.
func.func @model() {
  %x = pc.input data "x" dims ["batch", "embed"] : tensor<8x8xf32>
  %y = pc.input data "y" dims ["batch", "embed"] : tensor<8x8xf32>
  %eps = pc.constant 1.0e-03 : tensor<f32>
  %epses = pc.einsum "-> b" %eps : (tensor<f32>) -> tensor<8xf32>
  %ss = pc.einsum "b e, b e -> b" %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8xf32>
  %ms = pc.scale %ss by 0.125 : (tensor<8xf32>) -> tensor<8xf32>
  %me = pc.add %ms, %epses : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %root = pc.sqrt %me : (tensor<8xf32>) -> tensor<8xf32>
  %rstd = pc.recip %root : (tensor<8xf32>) -> tensor<8xf32>
  %n = pc.einsum "b, b e -> b e" %rstd, %y : (tensor<8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  // The root of the rows multiplies the columns.
  %m = pc.einsum "e, b e -> b e" %rstd, %x : (tensor<8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %ex = pc.exp %n : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %ey = pc.exp %m : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %sum = pc.einsum "b e -> b" %ey : (tensor<8x8xf32>) -> tensor<8xf32>
  %isum = pc.recip %sum : (tensor<8xf32>) -> tensor<8xf32>
  %p = pc.einsum "b e, b -> b e" %ex, %isum : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8x8xf32>
  %q = pc.einsum "b e, e -> b e" %ey, %isum : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8x8xf32>
  %pq = pc.add %p, %q : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %loss = pc.einsum "b e ->" %pq : (tensor<8x8xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// The sum under the logarithm is weighted.
func.func @model() {
  %x = pc.input data "x" dims ["batch", "embed"] : tensor<2x8xf32>
  %e = pc.exp %x : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %sum = pc.einsum "b e -> b" %e : (tensor<2x8xf32>) -> tensor<2xf32>
  %half = pc.scale %sum by 0.5 : (tensor<2xf32>) -> tensor<2xf32>
  %log = pc.log %half : (tensor<2xf32>) -> tensor<2xf32>
  %loss = pc.einsum "b ->" %log : (tensor<2xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
