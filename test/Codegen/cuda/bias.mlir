// RUN: pc-opt %s --pc-fuse=target=cuda | FileCheck %s
// RUN: pc-opt %s --pc-fuse | FileCheck %s --check-prefix=CPU

// cuBLASLt adds a bias only in the type of the result, so the bias of a bf16 product is rounded. oneDNN adds it in f32.
// CHECK: func.func @step(%[[X:.*]]: tensor<4x6xbf16>, %[[W:.*]]: tensor<6x8xbf16>, %[[B:.*]]: tensor<8xf32>)
// CHECK: %[[ROUNDED:.*]] = pc.cast %[[B]] : (tensor<8xf32>) -> tensor<8xbf16>
// CHECK: pc.fusion
// CHECK-SAME: %[[ROUNDED]]
// CHECK: pc.add
// CPU-NOT: pc.cast
// CPU: pc.fusion
// CPU: pc.add
func.func @step(%x: tensor<4x6xbf16>, %w: tensor<6x8xbf16>, %b: tensor<8xf32>) -> tensor<4x8xbf16> {
  %p = pc.einsum "r i, i o -> r o" %x, %w : (tensor<4x6xbf16>, tensor<6x8xbf16>) -> tensor<4x8xbf16>
  %c = pc.einsum "o -> r o" %b : (tensor<8xf32>) -> tensor<4x8xbf16>
  %s = pc.add %p, %c : (tensor<4x8xbf16>, tensor<4x8xbf16>) -> tensor<4x8xbf16>
  return %s : tensor<4x8xbf16>
}
