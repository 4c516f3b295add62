// pc-raise recognises ops in several forms: other orders of dims, products inside, maxima that are subtracted, no
// scale.
// RUN: pc-opt %s --pc-raise -o %t.raised && FileCheck %s < %t.raised
// RUN: pc-opt %s --pc-differentiate -o %t.pieces && pc-opt %t.raised --pc-differentiate -o %t.ops && pc-equal %t.pieces %t.ops

// CHECK-NOT: pc.{{exp|log|sqrt|recip|select}}
func.func @model() {
  %x = pc.input data "x" dims ["batch", "sequence", "embed"] : tensor<2x4x8xf32>
  %w = pc.parameter "w" dims ["sequence", "embed"] init <normal, 1.0> source <"w", shape = [4, 8], start = [0, 0], size = [4, 8]> : tensor<4x8xf32>
  %xw = pc.einsum "b s e, s e -> b s e" %x, %w : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>

  // A norm of a product along a middle dim, without a scale. Half of the result is multiplied by another value.
  // CHECK: %[[ONES:.*]] = pc.einsum "-> e"
  // CHECK: %[[LAST:.*]] = pc.einsum "i0 i1 i2 -> i0 i2 i1" %[[X:.*]] : (tensor<2x4x8xf32>) -> tensor<2x8x4xf32>
  // CHECK: %[[Y:.*]], %{{.*}} = pc.rms_norm %[[LAST]], %[[ONES]] eps 1.000000e-03
  // CHECK: %[[NX:.*]] = pc.einsum "i0 i2 i1, i0 i1 i2 -> i0 i1 i2" %[[Y]], %{{.*}}
  // CHECK: %[[HALF:.*]] = pc.scale %[[NX]] by 5.0
  %eps = pc.constant 1.0e-03 : tensor<f32>
  %epses = pc.einsum "-> b e" %eps : (tensor<f32>) -> tensor<2x8xf32>
  %ss = pc.einsum "b s e, b s e -> b e" %xw, %xw : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x8xf32>
  %ms = pc.scale %ss by 0.25 : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %me = pc.add %ms, %epses : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  %root = pc.sqrt %me : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %rstd = pc.recip %root : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %n = pc.einsum "b e, b s e, b s e -> b s e" %rstd, %x, %xw : (tensor<2x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %half = pc.scale %n by 0.5 : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>

  // A softmax along the first dim of that result, in which the subtracted number has no gradient.
  // CHECK: pc.softmax %[[HALF]]
  %turned = pc.einsum "b s e -> e b s" %half : (tensor<2x4x8xf32>) -> tensor<8x2x4xf32>
  %x3 = pc.einsum "b s e -> e b s" %x : (tensor<2x4x8xf32>) -> tensor<8x2x4xf32>
  %some = pc.einsum "e b s -> b s" %x3 : (tensor<8x2x4xf32>) -> tensor<2x4xf32>
  %some3 = pc.einsum "b s -> e b s" %some : (tensor<2x4xf32>) -> tensor<8x2x4xf32>
  %less = pc.sub %turned, %some3 : (tensor<8x2x4xf32>, tensor<8x2x4xf32>) -> tensor<8x2x4xf32>
  %e = pc.exp %less : (tensor<8x2x4xf32>) -> tensor<8x2x4xf32>
  %sum = pc.einsum "e b s -> b s" %e : (tensor<8x2x4xf32>) -> tensor<2x4xf32>
  %isum = pc.recip %sum : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %p = pc.einsum "e b s, b s -> s e b" %e, %isum : (tensor<8x2x4xf32>, tensor<2x4xf32>) -> tensor<4x8x2xf32>

  // The logarithm of a sum along a middle dim, to which the subtracted number is added again.
  // CHECK: pc.logsumexp %[[HALF]] : (tensor<2x4x8xf32>) -> tensor<2x4xf32>
  %log = pc.log %sum : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %lse = pc.add %log, %some : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>

  // The gelu of a product.
  // CHECK: pc.activation gelu_tanh
  %g = pc.einsum "s e b, s e -> b s e" %p, %w : (tensor<4x8x2xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %g3 = pc.einsum "b s e, b s e, b s e -> b s e" %g, %g, %g : (tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %g4 = pc.scale %g3 by 0.044715 : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %g5 = pc.add %g, %g4 : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %g6 = pc.scale %g5 by 0.7978845608 : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %g7 = pc.activation tanh %g6 : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %one = pc.constant 1.0 : tensor<f32>
  %ones = pc.einsum "-> b s e" %one : (tensor<f32>) -> tensor<2x4x8xf32>
  %g8 = pc.add %ones, %g7 : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %g9 = pc.einsum "b s e, b s e -> b s e" %g, %g8 : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %gelu = pc.scale %g9 by 0.5 : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>

  // Attention of one head in both directions, the transposed product first.
  // CHECK: pc.attention %{{.*}} scale 2.5
  %wq = pc.parameter "q" dims ["embed", "head_dim"] init <normal, 0.5> source <"q", shape = [8, 3], start = [0, 0], size = [8, 3]> : tensor<8x3xf32>
  %q = pc.einsum "b s e, e d -> d s b" %gelu, %wq : (tensor<2x4x8xf32>, tensor<8x3xf32>) -> tensor<3x4x2xf32>
  %k = pc.einsum "b t e, e d -> d t b" %gelu, %wq : (tensor<2x4x8xf32>, tensor<8x3xf32>) -> tensor<3x4x2xf32>
  %kq = pc.einsum "d t b, d s b -> t s b" %k, %q : (tensor<3x4x2xf32>, tensor<3x4x2xf32>) -> tensor<4x4x2xf32>
  %kq2 = pc.scale %kq by 0.25 : (tensor<4x4x2xf32>) -> tensor<4x4x2xf32>
  %a = pc.exp %kq2 : (tensor<4x4x2xf32>) -> tensor<4x4x2xf32>
  %asum = pc.einsum "t s b -> b s" %a : (tensor<4x4x2xf32>) -> tensor<2x4xf32>
  %ainv = pc.recip %asum : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %weights = pc.einsum "t s b, b s -> b s t" %a, %ainv : (tensor<4x4x2xf32>, tensor<2x4xf32>) -> tensor<2x4x4xf32>
  %o = pc.einsum "d t b, b s t -> s b d" %k, %weights : (tensor<3x4x2xf32>, tensor<2x4x4xf32>) -> tensor<4x2x3xf32>

  %loss1 = pc.einsum "s b d, s b d ->" %o, %o : (tensor<4x2x3xf32>, tensor<4x2x3xf32>) -> tensor<f32>
  %loss2 = pc.einsum "b s ->" %lse : (tensor<2x4xf32>) -> tensor<f32>
  %loss = pc.add %loss1, %loss2 : (tensor<f32>, tensor<f32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
