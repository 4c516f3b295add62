// A gradient that is wrong in one factor is found; so is a step without gradients.
// RUN: not pc-opt %s -split-input-file --pc-check-gradients 2>&1 | FileCheck %s

// CHECK: error: pc-check-gradients: gradient of 'w', element 0, is {{.*}}, but finite differences give
func.func @step() {
  %w = pc.parameter "w" dims ["embed"] init <normal, 2.0e-02> source <"w", shape = [3], start = [0], size = [3]> : tensor<3xf32>
  %loss = pc.einsum "e, e ->" %w, %w : (tensor<3xf32>, tensor<3xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  pc.output gradient "w" %w : tensor<3xf32>
  return
}

// -----

// CHECK: error: pc-check-gradients: the program has no output of kind gradient
func.func @step() {
  return
}
