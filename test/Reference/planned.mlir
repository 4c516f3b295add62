// A planned program stores its values in the arena. The first plan is right: exp overwrites the scale, which has no
// later reader. In the second, the sum of squares is read after it was overwritten. The third has a home outside of the
// arena.
// RUN: split-file %s %t
// RUN: pc-equal %t/local.mlir %t/right.mlir
// RUN: not pc-equal %t/local.mlir %t/overlap.mlir 2>&1 | FileCheck %s --check-prefix=OVERLAP
// RUN: not pc-equal %t/local.mlir %t/outside.mlir 2>&1 | FileCheck %s --check-prefix=OUTSIDE
// RUN: pc-opt %S/../Autodiff/differentiate.mlir --pc-differentiate=microbatches=2 --pc-localize --pc-plan-memory -o %t/planned.mlir
// RUN: pc-opt %S/../Autodiff/differentiate.mlir --pc-differentiate=microbatches=2 -o %t/step.mlir
// RUN: pc-equal %t/step.mlir %t/planned.mlir
// OVERLAP: loss loss differs
// OUTSIDE: error: a value of type 'tensor<8xf32, #pc.home<192>>' is outside the arena

//--- local.mlir
func.func @step() {
  %w = pc.parameter "w" dims ["x"] init <normal, 2.0e-02> source <"w", shape = [8], start = [0], size = [8]> global [8] layout <[_]> : tensor<8xf32>
  %q = pc.einsum "x, x ->" %w, %w : (tensor<8xf32>, tensor<8xf32>) -> tensor<f32>
  %s = pc.scale %w by 2.0 : (tensor<8xf32>) -> tensor<8xf32>
  %e = pc.exp %s : (tensor<8xf32>) -> tensor<8xf32>
  pc.output loss "loss" %q global [] layout <[]> : tensor<f32>
  pc.update "w" %e : tensor<8xf32>
  return
}
//--- right.mlir
pc.arena 192
func.func @step() {
  %w = pc.parameter "w" dims ["x"] init <normal, 2.0e-02> source <"w", shape = [8], start = [0], size = [8]> global [8] layout <[_]> : tensor<8xf32, #pc.home<0>>
  %q = pc.einsum "x, x ->" %w, %w : (tensor<8xf32, #pc.home<0>>, tensor<8xf32, #pc.home<0>>) -> tensor<f32, #pc.home<64>>
  %s = pc.scale %w by 2.0 : (tensor<8xf32, #pc.home<0>>) -> tensor<8xf32, #pc.home<128>>
  %e = pc.exp %s : (tensor<8xf32, #pc.home<128>>) -> tensor<8xf32, #pc.home<128>>
  pc.output loss "loss" %q global [] layout <[]> : tensor<f32, #pc.home<64>>
  pc.update "w" %e : tensor<8xf32, #pc.home<128>>
  return
}
//--- overlap.mlir
pc.arena 192
func.func @step() {
  %w = pc.parameter "w" dims ["x"] init <normal, 2.0e-02> source <"w", shape = [8], start = [0], size = [8]> global [8] layout <[_]> : tensor<8xf32, #pc.home<0>>
  %q = pc.einsum "x, x ->" %w, %w : (tensor<8xf32, #pc.home<0>>, tensor<8xf32, #pc.home<0>>) -> tensor<f32, #pc.home<64>>
  %s = pc.scale %w by 2.0 : (tensor<8xf32, #pc.home<0>>) -> tensor<8xf32, #pc.home<64>>
  %e = pc.exp %s : (tensor<8xf32, #pc.home<64>>) -> tensor<8xf32, #pc.home<0>>
  pc.output loss "loss" %q global [] layout <[]> : tensor<f32, #pc.home<64>>
  pc.update "w" %e : tensor<8xf32, #pc.home<0>>
  return
}
//--- outside.mlir
pc.arena 192
func.func @step() {
  %w = pc.parameter "w" dims ["x"] init <normal, 2.0e-02> source <"w", shape = [8], start = [0], size = [8]> global [8] layout <[_]> : tensor<8xf32, #pc.home<0>>
  %q = pc.einsum "x, x ->" %w, %w : (tensor<8xf32, #pc.home<0>>, tensor<8xf32, #pc.home<0>>) -> tensor<f32, #pc.home<64>>
  %s = pc.scale %w by 2.0 : (tensor<8xf32, #pc.home<0>>) -> tensor<8xf32, #pc.home<192>>
  pc.output loss "loss" %q global [] layout <[]> : tensor<f32, #pc.home<64>>
  pc.update "w" %s : tensor<8xf32, #pc.home<192>>
  return
}
