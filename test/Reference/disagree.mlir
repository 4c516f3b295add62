// In a local program without the all_reduce that it needs, ranks disagree. In a program that reduces twice, the value
// differs.
// RUN: split-file %s %t
// RUN: not pc-opt %t/missing.mlir --pc-interpret 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: not pc-equal %t/right.mlir %t/twice.mlir 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not pc-equal %t/right.mlir %t/other.mlir 2>&1 | FileCheck %s --check-prefix=OTHER
// RUN: pc-equal %t/right.mlir %t/other.mlir --common
// MISSING: error: 'pc.output' op ranks have different values of loss loss
// TWICE: loss loss differs: relative difference 5.0e-01
// TWICE: different
// OTHER: other.mlir has no gradient w

//--- missing.mlir
pc.mesh <dp = 2>
func.func @step() {
  %w = pc.parameter "w" dims ["x"] init <normal, 2.0e-02> source <"w", shape = [8], start = [0], size = [8]> global [8] layout <[dp]> : tensor<4xf32>
  %s = pc.einsum "x ->" %w : (tensor<4xf32>) -> tensor<f32>
  pc.output loss "loss" %s global [] layout <[]> : tensor<f32>
  return
}
//--- right.mlir
pc.mesh <dp = 2>
func.func @step() {
  %w = pc.parameter "w" dims ["x"] init <normal, 2.0e-02> source <"w", shape = [8], start = [0], size = [8]> global [8] layout <[dp]> : tensor<4xf32>
  %s = pc.einsum "x ->" %w : (tensor<4xf32>) -> tensor<f32>
  %r = pc.all_reduce sum %s on ["dp"] : (tensor<f32>) -> tensor<f32>
  pc.output loss "loss" %r global [] layout <[]> : tensor<f32>
  pc.output gradient "w" %w global [8] layout <[dp]> : tensor<4xf32>
  return
}
//--- twice.mlir
pc.mesh <dp = 2>
func.func @step() {
  %w = pc.parameter "w" dims ["x"] init <normal, 2.0e-02> source <"w", shape = [8], start = [0], size = [8]> global [8] layout <[dp]> : tensor<4xf32>
  %s = pc.einsum "x ->" %w : (tensor<4xf32>) -> tensor<f32>
  %r = pc.all_reduce sum %s on ["dp"] : (tensor<f32>) -> tensor<f32>
  %q = pc.all_reduce sum %r on ["dp"] : (tensor<f32>) -> tensor<f32>
  pc.output loss "loss" %q global [] layout <[]> : tensor<f32>
  pc.output gradient "w" %w global [8] layout <[dp]> : tensor<4xf32>
  return
}
//--- other.mlir
func.func @step() {
  %w = pc.parameter "w" dims ["x"] init <normal, 2.0e-02> source <"w", shape = [8], start = [0], size = [8]> : tensor<8xf32>
  %s = pc.einsum "x ->" %w : (tensor<8xf32>) -> tensor<f32>
  pc.output loss "loss" %s : tensor<f32>
  return
}
