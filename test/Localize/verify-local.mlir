// RUN: pc-opt %s --pc-verify-local -verify-diagnostics -split-input-file

pc.mesh <tp = 2>
func.func @placed() {
  // expected-error @below {{has a placed result (L1)}}
  %c = pc.constant 1.0 : tensor<f32, #pc.place<[]>>
  return
}

// -----

pc.mesh <tp = 2>
func.func @nowhere() {
  // expected-error @below {{needs 'global' and 'layout' in a local program (L2)}}
  %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [4], start = [0], size = [4]> : tensor<4xf32>
  return
}

// -----

pc.mesh <tp = 2>
func.func @wrong_block() {
  // expected-error @below {{dim 0 has global size 8 and is split into 2 blocks, which does not give a local size of 2 (L2)}}
  %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [8], start = [0], size = [8]> global [8] layout <[tp]> : tensor<2xf32>
  return
}

// -----

pc.mesh <tp = 2>
func.func @choice_of_another_block(%x: tensor<2x4x6xf32>) {
  // expected-error @below {{dim 0 has global size 8 and is split into 2 blocks, which does not give a local size of 2 (L2)}}
  %m = pc.top_k %x k 2 layer 1 global [8, 4, 6] layout <[tp, _, _]> : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32>
  return
}

// -----

pc.mesh <tp = 2>
func.func @unknown_axis() {
  // expected-error @below {{axis 'dp' is not in the mesh (L3)}}
  %o = pc.block_offset on ["dp"] block 4 : tensor<i32>
  return
}

// -----

func.func @updated_twice() {
  %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [4], start = [0], size = [4]> global [4] layout <[_]> : tensor<4xf32>
  pc.update "w" %w : tensor<4xf32>
  // expected-error @below {{sets 'w' a second time (L4)}}
  pc.update "w" %w : tensor<4xf32>
  // expected-error @below {{sets 'v', which is not a parameter or state of this program (L4)}}
  pc.update "v" %w : tensor<4xf32>
  return
}

// -----

func.func @model_op(%l: tensor<2x3x8xf32>, %t: tensor<2x3xi32>) {
  // expected-error @below {{belongs in model programs only; pc-differentiate expands it (L5)}}
  %n = pc.cross_entropy %l, %t : (tensor<2x3x8xf32>, tensor<2x3xi32>) -> tensor<2x3xf32>
  return
}

// -----

pc.mesh <dp = 2>
func.func @wire(%x: tensor<32x64xf32>) {
  // expected-error @below {{has 'wire', which belongs in placed programs only; pc-localize writes the codes of addends (L6)}}
  %y = pc.all_reduce sum %x on ["dp"] wire <int8, [16, 16]> : (tensor<32x64xf32>) -> tensor<32x64xf32>
  return
}

// -----

pc.mesh <dp = 2>
func.func @axisOfCodes(%x: tensor<32x64xf32>) {
  // expected-error @below {{axis 'tp' is not in the mesh (L3)}}
  %c = pc.encode_addend %x <int8, [16, 16]> on ["tp"] : tensor<32x64xf32> -> tensor<1x2x4x260xi8>
  return
}
