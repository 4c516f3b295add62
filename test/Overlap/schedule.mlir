// RUN: pc-opt %s --pc-schedule -verify-diagnostics -split-input-file | FileCheck %s

// Moves stay where they stand.
pc.mesh <tp = 2>
// CHECK-LABEL: func.func @step
func.func @step(%x: tensor<4xf32>) {
  // CHECK-NEXT: pc.all_reduce
  // CHECK-NEXT: pc.all_gather
  // CHECK-NEXT: return
  %y = pc.all_reduce sum %x on ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
  %z = pc.all_gather %y dim 0 on ["tp"] : (tensor<4xf32>) -> tensor<8xf32>
  return
}

// -----

pc.mesh <tp = 2>
func.func @move_in_kernel(%x: tensor<4xf32>) {
  %f = pc.fusion (%a = %x : tensor<4xf32> -> tensor<4xf32>) {
    // expected-error @below {{is a move inside a kernel (S1)}}
    %y = pc.all_reduce sum %a on ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
    pc.yield %y : tensor<4xf32>
  } : tensor<4xf32>
  return
}
