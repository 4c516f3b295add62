// An op that cannot be interpreted is refused at its location. The verifiers of phases need not have run.
// RUN: not pc-opt %s -split-input-file --pc-interpret -o /dev/null 2>&1 | FileCheck %s

// CHECK: error: this module has nothing to interpret; expected @step, @model or a single function

// -----

// CHECK: error: the interpreter only runs functions of one block without arguments
func.func @step(%x: tensor<f32>) {
  return
}

// -----

// CHECK: error: 'pc.parameter' op cannot be interpreted: axis 'tp' is not in the mesh
pc.mesh <dp = 2>
func.func @step() {
  %w = pc.parameter "w" dims ["x"] init <normal, 2.0e-02> source <"w", shape = [8], start = [0], size = [8]> : tensor<8xf32, #pc.place<[tp]>>
  return
}

// -----

// CHECK: error: 'pc.parameter' op cannot be interpreted: dim 0 of size 9 is split into 2 blocks
pc.mesh <dp = 2>
func.func @step() {
  %w = pc.parameter "w" dims ["x"] init <normal, 2.0e-02> source <"w", shape = [9], start = [0], size = [9]> : tensor<9xf32, #pc.place<[dp]>>
  return
}

// -----

// CHECK: error: 'pc.parameter' op cannot be interpreted: 'global' and 'layout' do not give 'tensor<8xf32>'
pc.mesh <dp = 2>
func.func @step() {
  %w = pc.parameter "w" dims ["x"] init <normal, 2.0e-02> source <"w", shape = [8], start = [0], size = [8]> global [8] layout <[dp]> : tensor<8xf32>
  return
}

// -----

// CHECK: error: 'pc.constant' op cannot be interpreted: it has a value of type 'tensor<?xf32>'
func.func @step() {
  %c = pc.constant 1.0 : tensor<?xf32>
  return
}

// -----

// CHECK: error: 'pc.constant' op cannot be interpreted: it has a tensor of more than 268435456 elements
func.func @step() {
  %c = pc.constant 1.0 : tensor<100000000000xf32>
  return
}

// -----

// CHECK: error: 'pc.block_offset' op cannot be interpreted: axis 'tp' is not in the mesh
func.func @step() {
  %o = pc.block_offset on ["tp"] block 4 : tensor<i32>
  return
}

// -----

// CHECK: error: 'pc.output' op cannot be interpreted: 'valid' is larger than the tensor
func.func @step() {
  %c = pc.constant 1.0 : tensor<4xf32>
  pc.output logits "logits" %c valid [5] : tensor<4xf32>
  return
}

// -----

// CHECK: error: 'pc.arena' op cannot be interpreted: it has more than 268435456 bytes
pc.arena 1000000000000
func.func @step() {
  return
}

// -----

// CHECK: error: 'pc.input' op has unknown bounds
func.func @step() {
  %t = pc.input tokens dims ["batch"] : tensor<4xi32>
  return
}

// -----

// CHECK: error: 'pc.update' op sets 'w', which is not a parameter or state of this program
func.func @step() {
  %c = pc.constant 1.0 : tensor<4xf32>
  pc.update "w" %c : tensor<4xf32>
  return
}

// -----

// CHECK: error: 'pc.clip_coefficient' op needs 9 hyper-parameters, got 4
func.func @step() {
  %n = pc.constant 1.0 : tensor<f32>
  %h = pc.constant 1.0 : tensor<4xf32>
  %c = pc.clip_coefficient %n, %h : (tensor<f32>, tensor<4xf32>) -> tensor<f32>
  return
}
