// Muon's matrices of one kind become stacks, which ranks divide along `layers`: each matrix has one owner.
// RUN: pc-opt %s --pc-differentiate=optimizer=muon --pc-stack-updates=multiple=4 | FileCheck %s --check-prefix=STACK
// STACK: pc.stack %[[U0:.*]], %[[U1:.*]] : (tensor<256x512xf32>, tensor<256x512xf32>) -> tensor<4x256x512xf32>
// STACK: pc.einsum "layers short long, layers short long -> layers"
// STACK: pc.einsum "layers short long, layers other long -> layers short other"
// STACK: pc.unstack %[[X:.*]] at 0 : (tensor<4x256x512xf32>) -> tensor<256x512xf32>
// STACK-NEXT: pc.unstack %[[X]] at 1
// `down` and `odd` have one shape, but different dims.
// STACK-NOT: pc.stack
// STACK: pc.update "up1"
// STACK: pc.update "up0"

// Owners: an all_to_all from shards to matrices, and one from the products to shards. In stage 1 the new parameters are gathered.
// RUN: pc-opt %s --pc-differentiate=optimizer=muon --pc-sign-step -o %t.step
// RUN: pc-opt %t.step --pc-stack-updates=multiple=4 --pc-set-mesh=mesh=dp=4 --pc-zero=stage=1 --pc-verify-placed --pc-prove=reference=%t.step | FileCheck %s --check-prefixes=OWNERS,ONE
// RUN: pc-opt %t.step --pc-stack-updates=multiple=4 --pc-set-mesh=mesh=dp=4 --pc-zero=stage=3 --pc-verify-placed --pc-prove=reference=%t.step | FileCheck %s --check-prefixes=OWNERS,THREE
// OWNERS: pc.stack
// OWNERS: pc.all_to_all {{.*}} -> tensor<4x256x512xf32, #pc.place<[dp, _, _]>>
// OWNERS: pc.all_to_all {{.*}} -> tensor<4x256x512xf32, #pc.place<[_, _, dp]>>
// OWNERS: pc.unstack
// ONE: pc.all_gather {{.*}} -> tensor<256x512xf32, #pc.place<[_, _]>>
// THREE: pc.update "up1" {{.*}} : tensor<256x512xf32, #pc.place<[_, dp]>>

// With data parallelism, and on axes that divide tokens, each rank takes its matrices without a move.
// RUN: pc-opt %t.step --pc-stack-updates=multiple=4 --pc-set-mesh=mesh=dp=4 --pc-data-parallel --pc-verify-placed --pc-prove=reference=%t.step | FileCheck %s --check-prefix=DATA
// RUN: pc-opt %t.step --pc-stack-updates=multiple=4 --pc-set-mesh=mesh=cp=4 --pc-context-parallel --pc-verify-placed --pc-prove=reference=%t.step | FileCheck %s --check-prefix=DATA
// DATA: pc.clip_coefficient
// DATA-NOT: pc.all_to_all
// DATA: pc.slice {{.*}} -> tensor<4x256x512xf32, #pc.place<{{\[}}[[AXIS:dp|cp]], _, _]>>
// DATA: pc.all_gather {{.*}} dim 0 on ["[[AXIS]]"] {{.*}} -> tensor<4x256x512xf32, #pc.place<[_, _, _]>>
// DATA: pc.unstack

// Sums of squares alone are no reason to copy matrices.
// RUN: pc-opt %s --pc-differentiate=optimizer=adafactor --pc-stack-updates=multiple=4 | FileCheck %s --check-prefix=SUMS
// SUMS-NOT: pc.stack
// SUMS: pc.update "col_var" of "odd"
func.func @model() {
  %x = pc.input tokens dims ["batch", "embed"] : tensor<8x256xf32>
  %up0 = pc.parameter "up0" dims ["embed", "ffn"] init <fill, 1.0> source <"up0", shape = [256, 512], start = [0, 0], size = [256, 512]> : tensor<256x512xf32>
  %down = pc.parameter "down" dims ["ffn", "embed"] init <fill, 1.0> source <"down", shape = [512, 256], start = [0, 0], size = [512, 256]> : tensor<512x256xf32>
  %up1 = pc.parameter "up1" dims ["embed", "ffn"] init <fill, 1.0> source <"up1", shape = [256, 512], start = [0, 0], size = [256, 512]> : tensor<256x512xf32>
  %odd = pc.parameter "odd" dims ["ffn", "other"] init <fill, 1.0> source <"odd", shape = [512, 256], start = [0, 0], size = [512, 256]> : tensor<512x256xf32>
  %h0 = pc.einsum "b e, e f -> b f" %x, %up0 : (tensor<8x256xf32>, tensor<256x512xf32>) -> tensor<8x512xf32>
  %y = pc.einsum "b f, f e -> b e" %h0, %down : (tensor<8x512xf32>, tensor<512x256xf32>) -> tensor<8x256xf32>
  %h1 = pc.einsum "b e, e f -> b f" %y, %up1 : (tensor<8x256xf32>, tensor<256x512xf32>) -> tensor<8x512xf32>
  %z = pc.einsum "b f, f o -> b o" %h1, %odd : (tensor<8x512xf32>, tensor<512x256xf32>) -> tensor<8x256xf32>
  %loss = pc.einsum "b o ->" %z : (tensor<8x256xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
