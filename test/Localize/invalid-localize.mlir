// RUN: pc-opt %s --pc-localize -verify-diagnostics -split-input-file

pc.mesh <tp = 2>
func.func @unplaced() {
  // expected-error @below {{is not placed, but the mesh has 2 ranks}}
  %w = pc.constant 1.0 : tensor<f32>
  return
}

// -----

pc.mesh <tp = 2>
func.func @uneven() {
  // expected-error @below {{dim 0 of size 97 does not divide into 2 blocks; the nearest sizes that do are 96 or 98}}
  %w = pc.parameter "w" dims ["vocab"] init <fill, 1.0> source <"w", shape = [97], start = [0], size = [97]> : tensor<97xf32, #pc.place<[tp]>>
  return
}

// -----

pc.mesh <tp = 2>
func.func @unknown_axis() {
  // expected-error @below {{is placed on axes that are not in the mesh}}
  %w = pc.parameter "w" dims ["vocab"] init <fill, 1.0> source <"w", shape = [96], start = [0], size = [96]> : tensor<96xf32, #pc.place<[dp]>>
  return
}

// -----

pc.mesh <tp = 2>
func.func @partial_leaf() {
  // expected-error @below {{is an input, parameter or state, which cannot be partial}}
  %c = pc.constant 1.0 : tensor<f32, #pc.place<[] sum(tp)>>
  return
}

// -----

pc.mesh <tp = 2>
func.func @update_elsewhere() {
  %w = pc.parameter "w" dims ["a", "b"] init <fill, 1.0> source <"w", shape = [4, 4], start = [0, 0], size = [4, 4]> : tensor<4x4xf32, #pc.place<[tp, _]>>
  %v = pc.parameter "v" dims ["a", "b"] init <fill, 1.0> source <"v", shape = [4, 4], start = [0, 0], size = [4, 4]> : tensor<4x4xf32, #pc.place<[_, tp]>>
  // The local shapes would be equal if it were split on the other dim of a square; placements decide.
  // expected-error @below {{to a value of type}}
  pc.update "w" %v : tensor<4x4xf32, #pc.place<[_, tp]>>
  return
}

// -----

pc.mesh <tp = 2>
func.func @local_already() {
  // expected-error @below {{has 'global' already}}
  %w = pc.parameter "w" dims ["a"] init <fill, 1.0> source <"w", shape = [4], start = [0], size = [4]> global [4] layout <[tp]> : tensor<4xf32, #pc.place<[tp]>>
  return
}
