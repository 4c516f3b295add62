// RUN: pc-opt %s --pc-fuse=target=cuda | FileCheck %s
// RUN: pc-opt %s --pc-fuse | FileCheck %s --check-prefix=CPU

// A block with gelu_tanh, forward and backward. cuBLASLt stores the biased product as well as its gelu, multiplies by
// the derivative, and computes the bias gradient together with the weight gradient. oneDNN only adds the bias.
// CHECK-LABEL: func.func @step
// CHECK: %[[H:.*]]:2 = pc.fusion
// CHECK-NEXT: %[[P:.*]] = pc.einsum "r i, i o -> r o"
// CHECK-NEXT: %[[B:.*]] = pc.einsum "o -> r o"
// CHECK-NEXT: %[[S:.*]] = pc.add %[[P]], %[[B]]
// CHECK-NEXT: %[[G:.*]] = pc.activation gelu_tanh %[[S]]
// CHECK-NEXT: pc.yield %[[S]], %[[G]]
// CHECK: %[[D:.*]] = pc.fusion ({{.*}} = %[[H]]#0
// CHECK-NEXT: %[[P:.*]] = pc.einsum "r e, e o -> r o"
// CHECK-NEXT: %[[G:.*]] = pc.activation_grad gelu_tanh %[[P]]
// CHECK-NEXT: pc.yield %[[G]]
// A gelu that the backward pass computes again stays there, so that its result is not kept from the forward pass on.
// CHECK: %[[A:.*]] = pc.activation gelu_tanh %[[H]]#0
// The sum comes before the product, and both read the same rows.
// CHECK: pc.fusion ({{.*}} = %[[D]]
// CHECK-NEXT: %[[W:.*]] = pc.einsum "r o, r i -> i o"
// CHECK-NEXT: %[[B:.*]] = pc.einsum "r o -> o"
// CHECK-NEXT: pc.yield
// CHECK: return %[[H]]#1, %[[D]], {{.*}}, %[[A]]
// CPU-LABEL: func.func @step
// CPU: pc.yield
// CPU: pc.activation gelu_tanh
// CPU: pc.einsum "r e, e o -> r o"
// CPU: pc.activation_grad
// CPU: pc.einsum "r o -> o"
func.func @step(%x: tensor<4x6xf32>, %w: tensor<6x8xf32>, %b: tensor<8xf32>, %dy: tensor<4x5xf32>, %v: tensor<5x8xf32>)
    -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<8xf32>, tensor<6x8xf32>, tensor<4x8xf32>) {
  %p = pc.einsum "r i, i o -> r o" %x, %w : (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
  %c = pc.einsum "o -> r o" %b : (tensor<8xf32>) -> tensor<4x8xf32>
  %s = pc.add %p, %c : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = pc.activation gelu_tanh %s : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %q = pc.einsum "r e, e o -> r o" %dy, %v : (tensor<4x5xf32>, tensor<5x8xf32>) -> tensor<4x8xf32>
  %d = pc.activation_grad gelu_tanh %q, %s : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %again = pc.activation gelu_tanh %s : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %db = pc.einsum "r o -> o" %d : (tensor<4x8xf32>) -> tensor<8xf32>
  %dw = pc.einsum "r o, r i -> i o" %d, %x : (tensor<4x8xf32>, tensor<4x6xf32>) -> tensor<6x8xf32>
  return %g, %d, %db, %dw, %again : tensor<4x8xf32>, tensor<4x8xf32>, tensor<8xf32>, tensor<6x8xf32>, tensor<4x8xf32>
}

// cuBLASLt supports neither the exact gelu nor rows that are not whole vectors, and cannot sum the rows of another
// matrix.
// CHECK-LABEL: func.func @exact
// CHECK: pc.fusion
// CHECK-NOT: pc.activation
// CHECK: pc.yield
// CHECK: pc.activation gelu
// CHECK-LABEL: func.func @odd
// CHECK: pc.fusion
// CHECK-NOT: pc.activation
// CHECK: pc.yield
// CHECK: pc.activation gelu_tanh
// CHECK-LABEL: func.func @other_rows
// CHECK-NOT: pc.fusion
// CHECK: return
func.func @exact(%x: tensor<4x6xf32>, %w: tensor<6x8xf32>, %b: tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %p = pc.einsum "r i, i o -> r o" %x, %w : (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
  %c = pc.einsum "o -> r o" %b : (tensor<8xf32>) -> tensor<4x8xf32>
  %s = pc.add %p, %c : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = pc.activation gelu %s : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %s, %g : tensor<4x8xf32>, tensor<4x8xf32>
}
func.func @odd(%x: tensor<4x6xf32>, %w: tensor<6x9xf32>, %b: tensor<9xf32>) -> (tensor<4x9xf32>, tensor<4x9xf32>) {
  %p = pc.einsum "r i, i o -> r o" %x, %w : (tensor<4x6xf32>, tensor<6x9xf32>) -> tensor<4x9xf32>
  %c = pc.einsum "o -> r o" %b : (tensor<9xf32>) -> tensor<4x9xf32>
  %s = pc.add %p, %c : (tensor<4x9xf32>, tensor<4x9xf32>) -> tensor<4x9xf32>
  %g = pc.activation gelu_tanh %s : (tensor<4x9xf32>) -> tensor<4x9xf32>
  return %s, %g : tensor<4x9xf32>, tensor<4x9xf32>
}
func.func @other_rows(%d: tensor<4x8xf32>, %w: tensor<6x8xf32>, %x: tensor<4x6xf32>) -> (tensor<8xf32>, tensor<4x6xf32>) {
  %db = pc.einsum "r o -> o" %d : (tensor<4x8xf32>) -> tensor<8xf32>
  %dx = pc.einsum "r o, i o -> r i" %d, %w : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<4x6xf32>
  return %db, %dx : tensor<8xf32>, tensor<4x6xf32>
}
