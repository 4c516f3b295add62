// The subtracted value is a sum of copies: three times the number that is added, and three times the mean. So nothing
// cancels.
// RUN: pc-opt %s --pc-raise -o %t.raised && FileCheck %s < %t.raised
// RUN: pc-opt %s --pc-differentiate -o %t.pieces && pc-opt %t.raised --pc-differentiate -o %t.ops && pc-equal %t.pieces %t.ops
// CHECK: %[[LESS:.*]] = pc.sub
// CHECK: pc.logsumexp %[[LESS]]
// CHECK-NOT: pc.layer_norm
// CHECK: pc.rms_norm
func.func @model() {
  %x = pc.input data "x" dims ["batch", "embed"] : tensor<2x8xf32>
  %w = pc.parameter "w" dims ["embed"] init <normal, 1.0> source <"w", shape = [8], start = [0], size = [8]> : tensor<8xf32>
  %y = pc.einsum "b e, e -> b e" %x, %w : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  %total = pc.einsum "b e -> b" %y : (tensor<2x8xf32>) -> tensor<2xf32>
  %m = pc.scale %total by 0.125 : (tensor<2xf32>) -> tensor<2xf32>
  %copies = pc.einsum "b -> b e c" %m : (tensor<2xf32>) -> tensor<2x8x3xf32>
  %thrice = pc.einsum "b e c -> b e" %copies : (tensor<2x8x3xf32>) -> tensor<2x8xf32>
  %less = pc.sub %y, %thrice : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  %e = pc.exp %less : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %sum = pc.einsum "b e -> b" %e : (tensor<2x8xf32>) -> tensor<2xf32>
  %log = pc.log %sum : (tensor<2xf32>) -> tensor<2xf32>
  %lse = pc.add %log, %m : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %ss = pc.einsum "b e, b e -> b" %less, %less : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2xf32>
  %ms = pc.scale %ss by 0.125 : (tensor<2xf32>) -> tensor<2xf32>
  %eps = pc.constant 1.0e-03 : tensor<f32>
  %epses = pc.einsum "-> b" %eps : (tensor<f32>) -> tensor<2xf32>
  %more = pc.add %ms, %epses : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %root = pc.sqrt %more : (tensor<2xf32>) -> tensor<2xf32>
  %rstd = pc.recip %root : (tensor<2xf32>) -> tensor<2xf32>
  %n = pc.einsum "b, b e, e -> b e" %rstd, %less, %w : (tensor<2xf32>, tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
  %a = pc.einsum "b e, b e ->" %n, %y : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<f32>
  %b = pc.einsum "b ->" %lse : (tensor<2xf32>) -> tensor<f32>
  %loss = pc.add %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
