// A parameter in tiles, and all ops with the tiled dim. The tiles follow each other, and their products are added. What
// such programs compute is compared in EndToEnd/tiles.py.
// RUN: pc-opt %s --pc-tile-parameters="tiles={up.*:2}" | FileCheck %s
// RUN: not pc-opt %s --pc-tile-parameters="tiles={up.weight:4}" 2>&1 | FileCheck %s --check-prefix=SIZE
// RUN: not pc-opt %s --pc-tile-parameters="tiles={up.*:2 down.weight:3}" 2>&1 | FileCheck %s --check-prefix=OTHER
// RUN: not pc-opt %s --pc-tile-parameters="tiles={head:2}" 2>&1 | FileCheck %s --check-prefix=HEAD
// RUN: not pc-opt %s --pc-tile-parameters="tiles={over.*:2}" 2>&1 | FileCheck %s --check-prefix=NOTHING
// RUN: not pc-opt %s --pc-tile-parameters="tiles={up.*}" 2>&1 | FileCheck %s --check-prefix=NUMBER

// SIZE: error: --tile: 'up.weight' cannot have 4 tiles (embed: 'pc.rms_norm' needs all of the dim; ffn: its size of 6 is not a multiple)
// OTHER: error: --tile: 'down.weight' would have 3 tiles, but 'up.weight' has 2 along the same dim
// HEAD: error: --tile: 'head' cannot have 2 tiles (vocab: 'pc.cross_entropy' needs all of the dim; embed: 'pc.rms_norm' needs all of the dim)
// NOTHING: error: --tile: 'over.*' fits no parameter
// NUMBER: error: --tile=up.*: expected GLOB:N with N of at least 2

// CHECK: pc.parameter "norm"
// CHECK: %[[UP0:.*]] = pc.parameter "up.weight:0" dims ["embed", "ffn"] {{.*}} source <"up.weight", shape = [8, 6], start = [0, 0], size = [8, 3]> : tensor<8x3xf32>
// CHECK: %[[UP1:.*]] = pc.parameter "up.weight:1" {{.*}} start = [0, 3], size = [8, 3]> : tensor<8x3xf32>
// CHECK: pc.parameter "up.bias:0" {{.*}} start = [0], size = [3]> : tensor<3xf32>
// CHECK: pc.parameter "up.bias:1" {{.*}} start = [3], size = [3]> : tensor<3xf32>
// The tensor is viewed with the dims of the parameter.
// CHECK: %[[DOWN0:.*]] = pc.parameter "down.weight:0" {{.*}} shape = [12, 8], start = [0, 0, 0, 0], size = [3, 1, 2, 4], view = [12, 1, 2, 4]> : tensor<3x1x2x4xf32>
// CHECK: pc.parameter "down.weight:1" {{.*}} start = [3, 0, 0, 0], size = [3, 1, 2, 4], view = [12, 1, 2, 4]> : tensor<3x1x2x4xf32>
// CHECK: pc.einsum "b e, e f -> b f" %{{.*}}, %[[UP0]] : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
// CHECK: pc.activation
// CHECK: %[[Y0:.*]] = pc.einsum "b f, f h g k -> b h g k" %{{.*}}, %[[DOWN0]]
// CHECK: pc.einsum "b e, e f -> b f" %{{.*}}, %[[UP1]]
// CHECK: %[[Y1:.*]] = pc.einsum "b f, f h g k -> b h g k"
// CHECK: %[[Y:.*]] = pc.add %[[Y0]], %[[Y1]]
// CHECK: pc.reshape {{.*}} %[[Y]]
func.func @model(%x: tensor<4x8xf32>, %targets: tensor<4xi32>) -> tensor<4xf32> {
  %norm = pc.parameter "norm" dims ["embed"] init <fill, 1.0> source <"norm", shape = [8], start = [0], size = [8]> : tensor<8xf32>
  %up = pc.parameter "up.weight" dims ["embed", "ffn"] init <normal, 1.0> source <"up.weight", shape = [8, 6], start = [0, 0], size = [8, 6]> : tensor<8x6xf32>
  %bias = pc.parameter "up.bias" dims ["ffn"] init <fill, 0.0> source <"up.bias", shape = [6], start = [0], size = [6]> : tensor<6xf32>
  %down = pc.parameter "down.weight" dims ["ffn", "one", "two", "four"] init <normal, 1.0>
    source <"down.weight", shape = [12, 8], start = [0, 0], size = [6, 8]> : tensor<6x1x2x4xf32>
  %head = pc.parameter "head" dims ["vocab", "embed"] init <normal, 1.0> source <"head", shape = [10, 8], start = [0, 0], size = [10, 8]> : tensor<10x8xf32>
  %n, %rstd = pc.rms_norm %x, %norm eps 1.0e-05 : (tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  %product = pc.einsum "b e, e f -> b f" %n, %up : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %wide = pc.einsum "f -> b f" %bias : (tensor<6xf32>) -> tensor<4x6xf32>
  %sum = pc.add %product, %wide : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %h = pc.activation silu %sum : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %y = pc.einsum "b f, f h g k -> b h g k" %h, %down : (tensor<4x6xf32>, tensor<6x1x2x4xf32>) -> tensor<4x1x2x4xf32>
  %flat = pc.reshape "b h g k -> b (h g k)" %y : (tensor<4x1x2x4xf32>) -> tensor<4x8xf32>
  %m, %r = pc.rms_norm %flat, %norm eps 1.0e-05 : (tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  %logits = pc.einsum "b e, v e -> b v" %m, %head : (tensor<4x8xf32>, tensor<10x8xf32>) -> tensor<4x10xf32>
  %nll = pc.cross_entropy %logits, %targets : (tensor<4x10xf32>, tensor<4xi32>) -> tensor<4xf32>
  return %nll : tensor<4xf32>
}
