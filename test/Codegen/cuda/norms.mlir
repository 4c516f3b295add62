// RUN: pc-opt %s --pc-fuse=target=cuda --split-input-file | FileCheck %s
// RUN: pc-opt %s --pc-fuse --split-input-file | FileCheck %s --check-prefix=CPU

// The gradient of a norm, its addition to that of the residual stream, what of it products read, and all sums over the rows
// are one kernel of a GPU: each row is read and written once. On a CPU, where threads share no sums, the norm's gradient and the sums are
// kernels of their own.
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

// A sum over rows is known when its kernel has ended: what reads it is another one.
// CHECK-LABEL: func.func @known_later
// CHECK: %[[S:.*]] = pc.einsum "r e -> e"
// CHECK-NEXT: pc.fusion (%{{.*}} = %[[S]]
func.func @known_later(%x: tensor<64x8xf32>) -> tensor<64x8xf32> {
  %sum = pc.einsum "r e -> e" %x : (tensor<64x8xf32>) -> tensor<8xf32>
  %all = pc.einsum "e -> r e" %sum : (tensor<8xf32>) -> tensor<64x8xf32>
  %y = pc.sub %x, %all : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<64x8xf32>
  return %y : tensor<64x8xf32>
}
