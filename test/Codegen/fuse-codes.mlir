// A product with a matrix of codes. On a CPU the runtime multiplies by codes and adds the bias; on a GPU a kernel
// multiplies by codes, and the bias is added by another one.
// RUN: pc-opt %s --pc-fuse | FileCheck %s
// RUN: pc-opt %s --pc-fuse=target=cuda | FileCheck %s --check-prefix=CUDA

// CHECK: pc.fusion
// CHECK-NEXT: pc.einsum "o i, o -> o i"
// CHECK-NEXT: pc.einsum "b s i, o i -> b s o"
// CHECK-NEXT: pc.einsum "o -> b s o"
// CHECK-NEXT: pc.add
// CHECK-NEXT: pc.yield

// CUDA: %[[Y:.*]] = pc.fusion
// CUDA-NEXT: pc.einsum "o i, o -> o i"
// CUDA-NEXT: pc.einsum "b s i, o i -> b s o"
// CUDA-NEXT: pc.yield
// CUDA: pc.fusion
// CUDA-NEXT: pc.einsum "o -> b s o"
// CUDA-NEXT: pc.add
func.func @coded(%x: tensor<2x3x32xf32>, %codes: tensor<8x32xi8>, %scales: tensor<8xf32>, %bias: tensor<8xf32>)
    -> tensor<2x3x8xf32> {
  %w = pc.einsum "o i, o -> o i" %codes, %scales : (tensor<8x32xi8>, tensor<8xf32>) -> tensor<8x32xf32>
  %p = pc.einsum "b s i, o i -> b s o" %x, %w : (tensor<2x3x32xf32>, tensor<8x32xf32>) -> tensor<2x3x8xf32>
  %b = pc.einsum "o -> b s o" %bias : (tensor<8xf32>) -> tensor<2x3x8xf32>
  %y = pc.add %p, %b : (tensor<2x3x8xf32>, tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  return %y : tensor<2x3x8xf32>
}
