// Large matrices get states in codes, with blocks that no plan changes. Tables, vectors and small matrices keep f32.
// RUN: pc-opt %s --pc-differentiate --pc-quantize-states --pc-verify-step --verify-roundtrip -o %t.coded
// RUN: FileCheck %s < %t.coded
// RUN: FileCheck %s --check-prefix=OPS < %t.coded
// A plan computes the same codes as one device. (test/EndToEnd/states.py runs steps before and after the pass.)
// RUN: pc-opt %t.coded --pc-set-mesh=mesh=dp=2 --pc-zero="axis=dp stage=1" -o %t.placed
// RUN: pc-equal %t.coded %t.placed | FileCheck %s --check-prefix=SAME
// RUN: not pc-opt %s --pc-differentiate=optimizer=sgd --pc-quantize-states 2>&1 | FileCheck %s --check-prefix=SGD
// RUN: sed 's/pc.state "exp_avg_scale" of "wide" dims \["embed", "ffn"\]/pc.state "exp_avg_scale" of "wide" dims ["ffn", "embed"]/' %t.coded | not pc-opt --pc-verify-step 2>&1 | FileCheck %s --check-prefix=DIMS

// SGD: error: pc-quantize-states: this module has no step with an update by AdamW
// DIMS: 'exp_avg_scale' must have the shape of 'wide'
// SAME: equal

// CHECK-DAG: pc.state "exp_avg" of "wide" dims ["embed", "ffn"] : tensor<64x96xi8>
// CHECK-DAG: pc.state "exp_avg_scale" of "wide" dims ["embed", "ffn"] : tensor<4x6xf32>
// CHECK-DAG: pc.state "exp_avg_sq" of "wide" dims ["embed", "ffn"] : tensor<64x96xi8>
// CHECK-DAG: pc.state "exp_avg_sq_scale" of "wide" dims ["embed", "ffn"] : tensor<4x6xf32>
// A head's elements and the longest other dim; heads themselves are not in blocks.
// CHECK-DAG: pc.state "exp_avg_scale" of "query" dims ["embed", "heads", "head_dim"] : tensor<4x3x2xf32>
// Only the last dim is long enough.
// CHECK-DAG: pc.state "exp_avg_scale" of "odd" dims ["rows", "columns"] : tensor<6x3xf32>
// CHECK-DAG: pc.state "exp_avg" of "table" {{.*}} : tensor<96x64xf32>
// CHECK-DAG: pc.state "exp_avg" of "bias" {{.*}} : tensor<96xf32>
// CHECK-DAG: pc.state "exp_avg" of "small" {{.*}} : tensor<64x32xf32>
// OPS: %[[M:.*]] = pc.decode dynamic %{{.*}}, %{{.*}} : (tensor<64x96xi8>, tensor<4x6xf32>) -> tensor<64x96xf32>
// OPS: %[[V:.*]] = pc.decode dynamic unsigned %{{.*}}, %{{.*}} : (tensor<64x96xi8>, tensor<4x6xf32>) -> tensor<64x96xf32>
// OPS: %{{.*}}, %[[M2:.*]], %[[V2:.*]] = pc.adamw %{{.*}}, %{{.*}}, %[[M]], %[[V]]
// OPS: %[[CODES:.*]], %[[SCALES:.*]] = pc.encode dynamic %[[M2]]
// OPS: pc.update "exp_avg" of "wide" %[[CODES]]
// OPS: pc.update "exp_avg_scale" of "wide" %[[SCALES]]

func.func @model() {
  %ids = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32>
  %table = pc.parameter "table" dims ["vocab", "embed"] init <normal, 1.0>
    source <"table", shape = [96, 64], start = [0, 0], size = [96, 64]> : tensor<96x64xf32>
  %wide = pc.parameter "wide" dims ["embed", "ffn"] init <normal, 1.0>
    source <"wide", shape = [64, 96], start = [0, 0], size = [64, 96]> : tensor<64x96xf32>
  %bias = pc.parameter "bias" dims ["ffn"] init <fill, 0.0>
    source <"bias", shape = [96], start = [0], size = [96]> : tensor<96xf32>
  %query = pc.parameter "query" dims ["embed", "heads", "head_dim"] init <normal, 1.0>
    source <"query", shape = [64, 96], start = [0, 0], size = [64, 96]> : tensor<64x3x32xf32>
  %odd = pc.parameter "odd" dims ["rows", "columns"] init <normal, 1.0>
    source <"odd", shape = [6, 768], start = [0, 0], size = [6, 768]> : tensor<6x768xf32>
  %small = pc.parameter "small" dims ["embed", "few"] init <normal, 1.0>
    source <"small", shape = [64, 32], start = [0, 0], size = [64, 32]> : tensor<64x32xf32>
  %x = pc.embedding %table, %ids : (tensor<96x64xf32>, tensor<4x8xi32>) -> tensor<4x8x64xf32>
  %h = pc.einsum "b s e, e f -> b s f" %x, %wide : (tensor<4x8x64xf32>, tensor<64x96xf32>) -> tensor<4x8x96xf32>
  %biased = pc.einsum "b s f, f -> b s f" %h, %bias : (tensor<4x8x96xf32>, tensor<96xf32>) -> tensor<4x8x96xf32>
  %q = pc.einsum "b s e, e h d -> b s h d" %x, %query : (tensor<4x8x64xf32>, tensor<64x3x32xf32>) -> tensor<4x8x3x32xf32>
  %few = pc.einsum "b s e, e f -> b s f" %x, %small : (tensor<4x8x64xf32>, tensor<64x32xf32>) -> tensor<4x8x32xf32>
  %a = pc.einsum "b s f ->" %biased : (tensor<4x8x96xf32>) -> tensor<f32>
  %b = pc.einsum "b s h d, b s h d ->" %q, %q : (tensor<4x8x3x32xf32>, tensor<4x8x3x32xf32>) -> tensor<f32>
  %c = pc.einsum "b s f, b s f ->" %few, %few : (tensor<4x8x32xf32>, tensor<4x8x32xf32>) -> tensor<f32>
  %d = pc.einsum "r c, r c ->" %odd, %odd : (tensor<6x768xf32>, tensor<6x768xf32>) -> tensor<f32>
  %ab = pc.add %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %cd = pc.add %c, %d : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %loss = pc.add %ab, %cd : (tensor<f32>, tensor<f32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
