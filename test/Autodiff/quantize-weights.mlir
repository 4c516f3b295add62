// The passes read large matrices as codes, with a decoded copy for each pass. Tables, vectors and small matrices stay as they are.
// RUN: pc-opt %s --pc-differentiate -o %t.plain
// RUN: pc-opt %t.plain --pc-quantize-weights --pc-verify-step --verify-roundtrip -o %t.coded
// RUN: FileCheck %s < %t.coded
// Rounding changes the step.
// RUN: not pc-equal %t.plain %t.coded
// Every plan computes what one device computes. ZeRO gathers codes and scales, and never the matrix.
// RUN: pc-opt %t.coded --pc-set-mesh=mesh=dp=2 --pc-zero="axis=dp stage=3" --pc-verify-placed -o %t.three
// RUN: pc-equal %t.coded %t.three | FileCheck %s --check-prefix=SAME
// RUN: FileCheck %s --check-prefix=THREE < %t.three
// RUN: FileCheck %s --check-prefix=NEVER < %t.three
// RUN: pc-opt %t.coded --pc-set-mesh=mesh=dp=2 --pc-zero="axis=dp stage=1" --pc-verify-placed -o %t.one
// RUN: pc-equal %t.coded %t.one | FileCheck %s --check-prefix=SAME
// RUN: FileCheck %s --check-prefix=ONE < %t.one
// RUN: pc-opt %t.coded --pc-set-mesh=mesh=tp=2 --pc-tensor-parallel --pc-verify-placed -o %t.tp
// RUN: pc-equal %t.coded %t.tp | FileCheck %s --check-prefix=SAME
// Erasing the placements gives the step.
// RUN: pc-opt %t.coded -o %t.text
// RUN: pc-opt %t.three --pc-erase-placements | diff %t.text -
// RUN: not pc-opt %s --pc-quantize-weights 2>&1 | FileCheck %s --check-prefix=MODEL

// MODEL: error: pc-quantize-weights: this module has no step that trains
// SAME: equal

// CHECK: %[[WIDE:.*]] = pc.parameter "wide"
// CHECK-NEXT: %[[CODES:.*]], %[[SCALES:.*]] = pc.encode linear %[[WIDE]] : (tensor<64x96xf32>) -> (tensor<64x96xi8>, tensor<4x6xf32>)
// CHECK-COUNT-2: pc.encode linear
// CHECK-NOT: pc.encode
// CHECK: pc.accumulate
// CHECK: %[[FIRST:.*]] = pc.decode linear %[[CODES]], %[[SCALES]]
// CHECK-NEXT: pc.einsum "b s e, e f -> b s f" %{{.*}}, %[[FIRST]]
// CHECK: pc.seed
// CHECK: %[[SECOND:.*]] = pc.decode linear %[[CODES]], %[[SCALES]]
// The optimizer reads the parameter.
// CHECK: pc.adamw %[[WIDE]],

// THREE: %[[WIDE:.*]] = pc.parameter "wide" {{.*}} : tensor<64x96xf32, #pc.place<[_, dp]>>
// THREE-NEXT: %[[CODES:.*]], %[[SCALES:.*]] = pc.encode linear %[[WIDE]] : {{.*}} -> (tensor<64x96xi8, #pc.place<[_, dp]>>, tensor<4x6xf32, #pc.place<[_, dp]>>)
// THREE: pc.accumulate
// THREE: pc.all_gather %{{.*}} dim 1 on ["dp"] : (tensor<64x96xi8,
// THREE: pc.seed
// THREE: pc.all_gather %{{.*}} dim 1 on ["dp"] : (tensor<64x96xi8,
// NEVER-NOT: pc.all_gather {{.*}} : (tensor<64x96xf32

// ONE: pc.parameter "wide" {{.*}} : tensor<64x96xf32, #pc.place<[_, dp]>>
// ONE: pc.all_gather %{{.*}} dim 1 on ["dp"] : (tensor<64x96xi8,
// ONE: pc.accumulate
// ONE-NOT: pc.all_gather {{.*}} : (tensor<64x96xf32

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
