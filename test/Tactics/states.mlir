// A state may have some of its parameter's dims: `row` has one number per row, `column` one per column, and `step` one per parameter.
// RUN: pc-opt %s --pc-differentiate=optimizer=rows --pc-verify-step -o %t.step
// RUN: FileCheck %s --input-file=%t.step
// CHECK: pc.state "row" of "w" dims ["vocab"] : tensor<16xf32>
// CHECK: pc.state "step" of "w" dims [] : tensor<f32>
// CHECK: pc.state "row" of "square" dims ["embed"] : tensor<8xf32>
// CHECK: pc.state "column" of "square" dims ["embed#1"] : tensor<8xf32>

// ZeRO splits a state along the dim of its parameter's shards. If it has no such dim, it stays whole.
// RUN: pc-opt %t.step --pc-set-mesh=mesh=dp=2 --pc-zero=stage=1 --pc-verify-placed -o %t.one
// RUN: FileCheck %s --input-file=%t.one --check-prefix=ZERO
// RUN: pc-equal %t.step %t.one
// RUN: pc-opt %t.step --pc-set-mesh=mesh=dp=2 --pc-zero=stage=3 --pc-verify-placed -o %t.three
// RUN: FileCheck %s --input-file=%t.three --check-prefix=ZERO
// RUN: pc-equal %t.step %t.three
// ZERO: pc.state "row" of "w" dims ["vocab"] : tensor<16xf32, #pc.place<[dp]>>
// ZERO: pc.state "step" of "w" dims [] : tensor<f32, #pc.place<[]>>
// ZERO: pc.state "row" of "up" dims ["embed"] : tensor<8xf32, #pc.place<[_]>>

// Tensor parallelism splits a state by the names of its dims. A sum over a dim that is split becomes partial.
// RUN: pc-opt %t.step --pc-set-mesh=mesh=tp=2 --pc-tensor-parallel --pc-verify-placed -o %t.tp
// RUN: FileCheck %s --input-file=%t.tp --check-prefix=TP
// RUN: pc-equal %t.step %t.tp
// TP: pc.state "row" of "up" dims ["embed"] : tensor<8xf32, #pc.place<[_]>>
// TP: pc.einsum "rows columns, rows columns -> rows" {{.*}} -> tensor<8xf32, #pc.place<[_] sum(tp)>>

// Padding of the parameter along a dim that the state has also pads the state.
// RUN: pc-opt %t.step --pc-pad-shards=ranks=3 -o %t.padded
// RUN: FileCheck %s --input-file=%t.padded --check-prefix=PAD
// RUN: pc-equal %t.step %t.padded
// RUN: pc-opt %t.padded --pc-set-mesh=mesh=dp=3 --pc-zero=stage=2 --pc-verify-placed -o %t.pad3
// RUN: pc-equal %t.step %t.pad3
// PAD: pc.state "row" of "w" dims ["vocab"] : tensor<18xf32>
// PAD: pc.state "step" of "w" dims [] : tensor<f32>
// PAD: pc.state "row" of "up" dims ["embed"] : tensor<9xf32>
// PAD: pc.state "column" of "up" dims ["ffn"] : tensor<16xf32>

// The settings are also those of the definition to which Adafactor leaves vectors.
// RUN: pc-opt %s --pc-differentiate=optimizer=adafactor:d=0.5 -o %t.adafactor
// RUN: FileCheck %s --input-file=%t.adafactor --check-prefix=SETTING
// RUN: pc-opt %t.adafactor --pc-pad-shards=ranks=3 --pc-set-mesh=mesh=dp=3 --pc-zero=stage=1 --pc-verify-placed -o %t.adafactor3
// RUN: pc-equal %t.adafactor %t.adafactor3
// SETTING: pc.state "variance" of "bias"
// SETTING: pc.scale %{{.*}} by 2.000000e+00

pc.optimizer "rows" dims ["stack", "rows", "columns"] others "sgd" states ["row", "column", "step"] over [["stack", "rows"], ["stack", "columns"], []]
    scalars ["lr", "columns"] {
^bb0(%w: tensor<?x?x?xf32>, %g: tensor<?x?x?xf32>, %old: tensor<?x?xf32>, %before: tensor<?x?xf32>, %step: tensor<f32>, %lr: tensor<f32>, %columns: tensor<f32>):
  %one = pc.constant 1.0 : tensor<f32>
  %t = pc.add %step, %one : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %squares = pc.einsum "stack rows columns, stack rows columns -> stack rows" %g, %g : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?xf32>
  %each = pc.recip %columns : (tensor<f32>) -> tensor<f32>
  %mean = pc.einsum ", stack rows -> stack rows" %each, %squares : (tensor<f32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %root = pc.add %old, %mean : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  %inverse = pc.recip %root : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %later = pc.recip %t : (tensor<f32>) -> tensor<f32>
  %rate = pc.einsum ", ->" %lr, %later : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %change = pc.einsum ", stack rows, stack rows columns -> stack rows columns" %rate, %inverse, %g : (tensor<f32>, tensor<?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %new = pc.sub %w, %change : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %sums = pc.einsum "stack rows columns, stack rows columns -> stack columns" %g, %g : (tensor<?x?x?xf32>, tensor<?x?x?xf32>) -> tensor<?x?xf32>
  %column = pc.add %before, %sums : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  pc.yield %new, %root, %column, %t : tensor<?x?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<f32>
}

pc.program "mlp" batch 6 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %up = pc.parameter "up" dims ["embed", "ffn"] init <fill, 1.0> source <"up", shape = [8, 16], start = [0, 0], size = [8, 16]> : tensor<8x16xf32>
  %square = pc.parameter "square" dims ["embed", "embed"] init <fill, 1.0> source <"square", shape = [8, 8], start = [0, 0], size = [8, 8]> : tensor<8x8xf32>
  %down = pc.parameter "down" dims ["ffn", "embed"] init <fill, 1.0> source <"down", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %head = pc.parameter "head" dims ["vocab", "embed"] init <fill, 1.0> source <"head", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %bias = pc.parameter "bias" dims ["embed"] init <fill, 0.0> source <"bias", shape = [8], start = [0], size = [8]> : tensor<8xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<6x8xi32>
  %targets = pc.input targets dims ["batch", "sequence"] : tensor<6x8xi32>
  %x = pc.embedding %w, %tokens : (tensor<16x8xf32>, tensor<6x8xi32>) -> tensor<6x8x8xf32>
  %z = pc.einsum "b s e, f e -> b s f" %x, %square : (tensor<6x8x8xf32>, tensor<8x8xf32>) -> tensor<6x8x8xf32>
  %h = pc.einsum "b s e, e f -> b s f" %z, %up : (tensor<6x8x8xf32>, tensor<8x16xf32>) -> tensor<6x8x16xf32>
  %y = pc.einsum "b s f, f e -> b s e" %h, %down : (tensor<6x8x16xf32>, tensor<16x8xf32>) -> tensor<6x8x8xf32>
  %biases = pc.einsum "e -> b s e" %bias : (tensor<8xf32>) -> tensor<6x8x8xf32>
  %sum = pc.add %y, %biases : (tensor<6x8x8xf32>, tensor<6x8x8xf32>) -> tensor<6x8x8xf32>
  %logits = pc.einsum "b s e, v e -> b s v" %sum, %head : (tensor<6x8x8xf32>, tensor<16x8xf32>) -> tensor<6x8x16xf32>
  %nll = pc.cross_entropy %logits, %targets : (tensor<6x8x16xf32>, tensor<6x8xi32>) -> tensor<6x8xf32>
  %loss = pc.einsum "b s ->" %nll : (tensor<6x8xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
