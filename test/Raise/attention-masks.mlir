// Both forms of a causal mask are recognised with grouped queries. A strict mask, a mask that sees the future and a
// mask of finite scores stay as they are.
// RUN: sed 's/MASK/less_equal %col, %row, %raw, %lows/; s/LOW/-1.0e+09/' %s | pc-opt --pc-raise -o %t.raised
// RUN: FileCheck %s < %t.raised
// RUN: sed 's/MASK/less_equal %col, %row, %raw, %lows/; s/LOW/-1.0e+09/' %s | pc-opt --pc-differentiate -o %t.pieces
// RUN: pc-opt %t.raised --pc-differentiate -o %t.ops && pc-equal %t.pieces %t.ops
// RUN: sed 's/MASK/less %row, %col, %lows, %raw/; s/LOW/-1.0e+09/' %s | pc-opt --pc-raise | FileCheck %s
// RUN: sed 's/MASK/less %col, %row, %raw, %lows/; s/LOW/-1.0e+09/' %s | pc-opt --pc-raise | FileCheck %s --check-prefix=PIECES
// RUN: sed 's/MASK/less_equal %row, %col, %raw, %lows/; s/LOW/-1.0e+09/' %s | pc-opt --pc-raise | FileCheck %s --check-prefix=PIECES
// RUN: sed 's/MASK/less_equal %col, %row, %raw, %lows/; s/LOW/-1.0e+02/' %s | pc-opt --pc-raise | FileCheck %s --check-prefix=PIECES
// RUN: sed 's/MASK/less_equal %col, %row, %lows, %raw/; s/LOW/-1.0e+09/' %s | pc-opt --pc-raise | FileCheck %s --check-prefix=PIECES

// CHECK: pc.attention causal %{{.*}} scale 5.0{{0*}}e-01 : (tensor<2x4x2x3x4xf32>, tensor<2x4x2x4xf32>, tensor<2x4x2x4xf32>)
// PIECES-NOT: pc.attention
// PIECES: pc.select
// PIECES: pc.softmax
func.func @model() {
  %x = pc.input data "x" dims ["batch", "sequence", "embed"] : tensor<2x4x8xf32>
  %wq = pc.parameter "q" dims ["embed", "kv_heads", "group", "head_dim"] init <normal, 0.5> source <"q", shape = [8, 24], start = [0, 0], size = [8, 24]> : tensor<8x2x3x4xf32>
  %wk = pc.parameter "k" dims ["embed", "kv_heads", "head_dim"] init <normal, 0.5> source <"k", shape = [8, 8], start = [0, 0], size = [8, 8]> : tensor<8x2x4xf32>
  %wv = pc.parameter "v" dims ["embed", "kv_heads", "head_dim"] init <normal, 0.5> source <"v", shape = [8, 8], start = [0, 0], size = [8, 8]> : tensor<8x2x4xf32>
  %q = pc.einsum "b s e, e k g d -> b k g s d" %x, %wq : (tensor<2x4x8xf32>, tensor<8x2x3x4xf32>) -> tensor<2x2x3x4x4xf32>
  %k = pc.einsum "b s e, e k d -> b k s d" %x, %wk : (tensor<2x4x8xf32>, tensor<8x2x4xf32>) -> tensor<2x2x4x4xf32>
  %v = pc.einsum "b s e, e k d -> b k s d" %x, %wv : (tensor<2x4x8xf32>, tensor<8x2x4xf32>) -> tensor<2x2x4x4xf32>
  %half = pc.scale %q by 0.5 : (tensor<2x2x3x4x4xf32>) -> tensor<2x2x3x4x4xf32>
  %raw = pc.einsum "b k g s d, b k t d -> b k g s t" %half, %k : (tensor<2x2x3x4x4xf32>, tensor<2x2x4x4xf32>) -> tensor<2x2x3x4x4xf32>
  %places = pc.iota -> tensor<4xi32>
  %count = pc.cast %places : (tensor<4xi32>) -> tensor<4xf32>
  %row = pc.einsum "s -> b k g s t" %count : (tensor<4xf32>) -> tensor<2x2x3x4x4xf32>
  %col = pc.einsum "t -> b k g s t" %count : (tensor<4xf32>) -> tensor<2x2x3x4x4xf32>
  %low = pc.constant LOW : tensor<f32>
  %lows = pc.einsum "-> b k g s t" %low : (tensor<f32>) -> tensor<2x2x3x4x4xf32>
  %masked = pc.select MASK : (tensor<2x2x3x4x4xf32>, tensor<2x2x3x4x4xf32>, tensor<2x2x3x4x4xf32>, tensor<2x2x3x4x4xf32>) -> tensor<2x2x3x4x4xf32>
  %weights = pc.softmax %masked : (tensor<2x2x3x4x4xf32>) -> tensor<2x2x3x4x4xf32>
  %o = pc.einsum "b k g s t, b k t d -> b s k g d" %weights, %v : (tensor<2x2x3x4x4xf32>, tensor<2x2x4x4xf32>) -> tensor<2x4x2x3x4xf32>
  %loss = pc.einsum "b s k g d, b s k g d ->" %o, %o : (tensor<2x4x2x3x4xf32>, tensor<2x4x2x3x4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
