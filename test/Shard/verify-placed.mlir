// RUN: pc-opt %s --pc-verify-placed -verify-diagnostics -split-input-file

// expected-error @+1 {{a placed program needs pc.mesh as its first op (V1)}}
module {
  func.func @step() {
    return
  }
}

// -----

module {
  pc.mesh <dp = 2>
  func.func @step() {
    // expected-error @+1 {{'input' is not placed: 'tensor<9xf32>' (V2)}}
    %h = pc.input hyper dims ["hyper"] : tensor<9xf32>
    return
  }
}

// -----

module {
  pc.mesh <dp = 2>
  func.func @step() {
    // expected-error @+1 {{axis 'tp' of 'tensor<9xf32, #pc.place<[tp]>>' is not in the mesh (V2)}}
    %h = pc.input hyper dims ["hyper"] : tensor<9xf32, #pc.place<[tp]>>
    return
  }
}

// -----

module {
  pc.mesh <dp = 2>
  func.func @step() {
    // expected-error @+1 {{an input, parameter or state must not be partial, but 'input' is #pc.place<[_] sum(dp)> (V3)}}
    %h = pc.input hyper dims ["hyper"] : tensor<9xf32, #pc.place<[_] sum(dp)>>
    return
  }
}

// -----

// An update has another placement than its leaf; the leaf of another update does not exist.
module {
  pc.mesh <dp = 2>
  func.func @step() {
    %w = pc.parameter "w" dims ["embed"] init <fill, 1.0> source <"w", shape = [8], start = [0], size = [8]> : tensor<8xf32, #pc.place<[dp]>>
    %g = pc.all_gather %w dim 0 on ["dp"] : (tensor<8xf32, #pc.place<[dp]>>) -> tensor<8xf32, #pc.place<[_]>>
    // expected-error @+1 {{'w' is placed as 'tensor<8xf32, #pc.place<[dp]>>', but its new value as 'tensor<8xf32, #pc.place<[_]>>' (V4)}}
    pc.update "w" %g : tensor<8xf32, #pc.place<[_]>>
    // expected-error @+1 {{updates 'exp_avg of w', which is not a parameter or state of this program (V4)}}
    pc.update "exp_avg" of "w" %g : tensor<8xf32, #pc.place<[_]>>
    return
  }
}

// -----

module {
  pc.mesh <dp = 2>
  func.func @step() {
    // expected-error @+1 {{'w' is #pc.place<[_, dp]>, which cuts groups of codes (V6)}}
    %w = pc.parameter "w" dims ["ffn", "code"] init <fill, 0.0> source <"w", shape = [4, 32], start = [0, 0], size = [4, 32]> : tensor<4x32xi4, #pc.place<[_, dp]>>
    return
  }
}
