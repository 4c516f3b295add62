// In a bf16 program the factor of a recurrence is f32, and so is the value that is broadcast to it, because a factor
// near 1 would round to 1. States are bf16.
// RUN: pc-opt %s --pc-differentiate -o %t.step && pc-opt %t.step --pc-mixed-precision -o %t.half && FileCheck %s < %t.half
// RUN: pc-equal %t.step %t.half && pc-equal --rounded %t.step %t.half

// CHECK: pc.activation sigmoid {{.*}} -> tensor<6xf32>
// CHECK: pc.einsum "f -> b s f" {{.*}} -> tensor<2x3x6xf32>
// CHECK: pc.activation sigmoid {{.*}} : (tensor<2x3x6xbf16>) -> tensor<2x3x6xf32>
// CHECK: pc.recurrence "b s f, b s f -> b s f" along "s" {{.*}} : (tensor<2x3x6xf32>, tensor<2x3x6xbf16>) -> tensor<2x3x6xbf16>
// CHECK: pc.recurrence "b s f, b s f -> b s f" along "s" reverse {{.*}} : (tensor<2x3x6xf32>, tensor<2x3x6xbf16>) -> tensor<2x3x6xbf16>
// CHECK: pc.recurrence_grad {{.*}} reverse {{.*}} : (tensor<2x3x6xf32>, tensor<2x3x6xbf16>, {{.*}}) -> (tensor<2x3x6xf32>, tensor<2x3x6xbf16>)
// CHECK: pc.recurrence_grad {{.*}} : (tensor<2x3x6xf32>, tensor<2x3x6xbf16>, {{.*}}) -> (tensor<2x3x6xf32>, tensor<2x3x6xbf16>)
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 1.0> source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %v = pc.parameter "v" dims ["embed", "ffn"] init <normal, 1.0> source <"v", shape = [4, 6], start = [0, 0], size = [4, 6]> : tensor<4x6xf32>
  %d = pc.parameter "d" dims ["ffn"] init <normal, 1.0> source <"d", shape = [6], start = [0], size = [6]> : tensor<6xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %b = pc.einsum "b s e, e f -> b s f" %x, %v : (tensor<2x3x4xf32>, tensor<4x6xf32>) -> tensor<2x3x6xf32>
  %decay = pc.activation sigmoid %d : (tensor<6xf32>) -> tensor<6xf32>
  %same = pc.einsum "f -> b s f" %decay : (tensor<6xf32>) -> tensor<2x3x6xf32>
  %a = pc.activation sigmoid %b : (tensor<2x3x6xf32>) -> tensor<2x3x6xf32>
  %there = pc.recurrence "b s f, b s f -> b s f" along "s" %a, %b : (tensor<2x3x6xf32>, tensor<2x3x6xf32>) -> tensor<2x3x6xf32>
  %back = pc.recurrence "b s f, b s f -> b s f" along "s" reverse %same, %there : (tensor<2x3x6xf32>, tensor<2x3x6xf32>) -> tensor<2x3x6xf32>
  %y = pc.einsum "b s f, e f -> b s e" %back, %v : (tensor<2x3x6xf32>, tensor<4x6xf32>) -> tensor<2x3x4xf32>
  %loss = pc.einsum "b s e, b s e ->" %y, %y : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
