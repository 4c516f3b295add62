// RUN: pc-opt %s --pc-fuse=target=cuda --split-input-file | FileCheck %s
// RUN: pc-opt %s --pc-fuse --split-input-file | FileCheck %s --check-prefix=CPU

// On a GPU, one kernel computes the gradient of a norm, adds it to the gradient of the residual stream, writes the
// operands of later products, and computes all sums over the rows. It reads and writes each row once. On a CPU, where
// threads share no sums, the norm's gradient and the sums are separate kernels.
// CHECK-LABEL: func.func @gradient
// CHECK-NEXT: %[[F:.*]]:5 = pc.fusion
// CHECK-NEXT: pc.layer_norm_grad
// CHECK-NEXT: pc.add
// CHECK-NEXT: pc.cast
// CHECK-NEXT: pc.einsum "b s e -> e"
// CHECK-NEXT: pc.yield
// CHECK-NEXT: }
// CHECK-NEXT: return
// CPU-LABEL: func.func @gradient
// CPU-NEXT: pc.layer_norm_grad
// CPU: pc.fusion
// CPU-NEXT: pc.add
// CPU-NEXT: pc.cast
// CPU-NEXT: pc.yield
// CPU: pc.einsum "b s e -> e"
func.func @gradient(%dy: tensor<4x16x8xbf16>, %x: tensor<4x16x8xf32>, %m: tensor<4x16xf32>, %r: tensor<4x16xf32>, %gamma: tensor<8xf32>, %residual: tensor<4x16x8xf32>)
    -> (tensor<4x16x8xf32>, tensor<4x16x8xbf16>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %dx, %dgamma, %dbeta = pc.layer_norm_grad %dy, %x, %m, %r, %gamma : (tensor<4x16x8xbf16>, tensor<4x16x8xf32>, tensor<4x16xf32>, tensor<4x16xf32>, tensor<8xf32>) -> (tensor<4x16x8xf32>, tensor<8xf32>, tensor<8xf32>)
  %sum = pc.add %residual, %dx : (tensor<4x16x8xf32>, tensor<4x16x8xf32>) -> tensor<4x16x8xf32>
  %half = pc.cast %sum : (tensor<4x16x8xf32>) -> tensor<4x16x8xbf16>
  %bias = pc.einsum "b s e -> e" %sum : (tensor<4x16x8xf32>) -> tensor<8xf32>
  return %sum, %half, %dgamma, %dbeta, %bias : tensor<4x16x8xf32>, tensor<4x16x8xbf16>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// -----

// A sum over rows is complete only when its kernel has ended, so the op that reads it is in another kernel.
// CHECK-LABEL: func.func @known_later
// CHECK: %[[S:.*]] = pc.einsum "r e -> e"
// CHECK-NEXT: pc.fusion (%{{.*}} = %[[S]]
func.func @known_later(%x: tensor<64x8xf32>) -> tensor<64x8xf32> {
  %sum = pc.einsum "r e -> e" %x : (tensor<64x8xf32>) -> tensor<8xf32>
  %all = pc.einsum "e -> r e" %sum : (tensor<8xf32>) -> tensor<64x8xf32>
  %y = pc.sub %x, %all : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<64x8xf32>
  return %y : tensor<64x8xf32>
}
