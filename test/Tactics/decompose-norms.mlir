// RUN: pc-opt %s --pc-decompose-norms | FileCheck %s

// A norm whose scale is no parameter stays as it is.
// CHECK: pc.rms_norm
func.func @step(%x: tensor<4x8xf32>, %gamma: tensor<8xf32>) -> tensor<4x8xf32> {
  %y, %r = pc.rms_norm %x, %gamma eps 1.0e-5 : (tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return %y : tensor<4x8xf32>
}
