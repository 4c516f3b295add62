// Matrices that only products with activations read become codes and scales, whatever else is in the step. The model
// has a matrix of each kind that stays as it is.
// RUN: pc-opt %s --pc-generate-steps="slots=2 size=2 sampling=false" -o %t.step
// RUN: pc-opt %t.step --pc-store-codes=weights=int8 --pc-verify-step --verify-roundtrip -o %t.int8
// RUN: FileCheck %s < %t.int8
// RUN: pc-opt %t.step --pc-store-codes=weights=int4 --pc-verify-step --verify-roundtrip -o %t.int4
// RUN: FileCheck %s --check-prefix=INT4 < %t.int4
// RUN: pc-check-generation %s %t.int8 | FileCheck %s --check-prefix=SAME
// RUN: pc-check-generation %s %t.int4 | FileCheck %s --check-prefix=SAME
// RUN: not pc-opt %t.step --pc-store-codes=weights=int4:64 2>&1 | FileCheck %s --check-prefix=GROUP
// RUN: not pc-opt %t.step --pc-store-codes=weights=int2 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not pc-opt %s --pc-store-codes 2>&1 | FileCheck %s --check-prefix=STEP
// RUN: sed 's/pc.state "scale" of "out"/pc.state "scales" of "out"/' %t.int8 | not pc-opt --pc-verify-step 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: sed '/"d0\|"scale"/s/tensor<32xf32>/tensor<32xbf16>/' %t.int8 | not pc-opt 2>&1 | FileCheck %s --check-prefix=NARROW

// GROUP: error: pc-store-codes: 'wide' has rows of 32 numbers in dim 'embed', which are not a multiple of the group of 64; use --weights=int8
// UNKNOWN: error: pc-store-codes: unknown weights 'int2' (int8, int4, int4:64)
// STEP: error: pc-store-codes: this module has no step that generates text; run pc-generate-steps first
// NONE: 'out' has codes and needs a state "scale" with some of its dims (T8)
// NARROW: operand 1 must be f32, got 'tensor<32xbf16>' (T2)
// SAME: equal

// Scales have the dims that the product keeps. The matrix lies as [out, in] or as [in, out].
// CHECK-DAG: %[[WIDE:.*]] = pc.parameter "wide" dims ["ffn", "embed"] {{.*}} : tensor<64x32xi8>
// CHECK-DAG: %[[SCALES:.*]] = pc.state "scale" of "wide" dims ["ffn"] : tensor<64xf32>
// CHECK-DAG: pc.parameter "narrow" {{.*}} : tensor<64x32xi8>
// CHECK-DAG: pc.state "scale" of "narrow" dims ["embed"] : tensor<32xf32>
// CHECK-DAG: pc.parameter "query" {{.*}} : tensor<2x1x32x32xi8>
// CHECK-DAG: pc.state "scale" of "query" dims ["kv_heads", "group", "head_dim"] : tensor<2x1x32xf32>
// CHECK-DAG: pc.state "scale" of "out" dims ["embed"] : tensor<32xf32>
// Words, positions, norms, matrices that products read in two ways, and those that other ops read.
// CHECK-DAG: pc.parameter "wte" {{.*}} : tensor<16x32xf32>
// CHECK-DAG: pc.parameter "wpe" {{.*}} : tensor<8x32xf32>
// CHECK-DAG: pc.parameter "gamma" {{.*}} : tensor<32xf32>
// CHECK-DAG: pc.parameter "both" {{.*}} : tensor<32x32xf32>
// CHECK-DAG: pc.parameter "key" {{.*}} : tensor<2x32x32xf32>
// CHECK: %[[MATRIX:.*]] = pc.einsum "d0 d1, d0 -> d0 d1" %[[WIDE]], %[[SCALES]] : (tensor<64x32xi8>, tensor<64xf32>) -> tensor<64x32xf32>
// CHECK: pc.einsum "b s e, f e -> b s f" %{{.*}}, %[[MATRIX]]

// Each group of the innermost dim that is summed has a scale.
// INT4-DAG: %[[WIDE:.*]] = pc.parameter "wide" dims ["ffn", "embed", "code"] {{.*}} : tensor<64x1x32xi4>
// INT4-DAG: %[[SCALES:.*]] = pc.state "scale" of "wide" dims ["ffn", "embed"] : tensor<64x1xf32>
// INT4-DAG: pc.parameter "narrow" dims ["ffn", "code", "embed"] {{.*}} : tensor<2x32x32xi4>
// INT4-DAG: pc.state "scale" of "narrow" dims ["ffn", "embed"] : tensor<2x32xf32>
// INT4-DAG: pc.parameter "out" dims ["kv_heads", "group", "head_dim", "code", "embed"] {{.*}} : tensor<2x1x1x32x32xi4>
// INT4-DAG: pc.state "scale" of "out" dims ["kv_heads", "group", "head_dim", "embed"] : tensor<2x1x1x32xf32>
// INT4: %[[MATRIX:.*]] = pc.einsum "d0 d1 d2, d0 d1 -> d0 d1 d2" %[[WIDE]], %[[SCALES]] : (tensor<64x1x32xi4>, tensor<64x1xf32>) -> tensor<64x1x32xf32>
// INT4: %[[VIEW:.*]] = pc.reshape "d0 d1 d2 -> d0 (d1 d2)" %[[MATRIX]] : (tensor<64x1x32xf32>) -> tensor<64x32xf32>
// INT4: pc.einsum "b s e, f e -> b s f" %{{.*}}, %[[VIEW]]

pc.program "gpt2" batch 2 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x8xi32>
  %wide = pc.parameter "wide" dims ["ffn", "embed"] init <normal, 1.0> source <"wide", shape = [64, 32], start = [0, 0], size = [64, 32]> : tensor<64x32xf32>
  %narrow = pc.parameter "narrow" dims ["ffn", "embed"] init <normal, 1.0> source <"narrow", shape = [64, 32], start = [0, 0], size = [64, 32]> : tensor<64x32xf32>
  %wte = pc.parameter "wte" dims ["vocab", "embed"] init <normal, 1.0> source <"wte", shape = [16, 32], start = [0, 0], size = [16, 32]> : tensor<16x32xf32>
  %wpe = pc.parameter "wpe" dims ["position", "embed"] init <normal, 1.0> source <"wpe", shape = [8, 32], start = [0, 0], size = [8, 32]> : tensor<8x32xf32>
  %query = pc.parameter "query" dims ["kv_heads", "group", "head_dim", "embed"] init <normal, 1.0> source <"query", shape = [64, 32], start = [0, 0], size = [64, 32]> : tensor<2x1x32x32xf32>
  %key = pc.parameter "key" dims ["kv_heads", "head_dim", "embed"] init <normal, 1.0> source <"key", shape = [64, 32], start = [0, 0], size = [64, 32]> : tensor<2x32x32xf32>
  %out = pc.parameter "out" dims ["kv_heads", "group", "head_dim", "embed"] init <normal, 1.0> source <"out", shape = [64, 32], start = [0, 0], size = [64, 32]> : tensor<2x1x32x32xf32>
  %both = pc.parameter "both" dims ["embed", "embed"] init <normal, 1.0> source <"both", shape = [32, 32], start = [0, 0], size = [32, 32]> : tensor<32x32xf32>
  %gamma = pc.parameter "gamma" dims ["embed"] init <fill, 1.0> source <"gamma", shape = [32], start = [0], size = [32]> : tensor<32xf32>
  %e = pc.embedding %wte, %tokens : (tensor<16x32xf32>, tensor<2x8xi32>) -> tensor<2x8x32xf32>
  %index = pc.iota -> tensor<8xi32>
  %rows = pc.embedding %wpe, %index : (tensor<8x32xf32>, tensor<8xi32>) -> tensor<8x32xf32>
  %p = pc.einsum "s e -> b s e" %rows : (tensor<8x32xf32>) -> tensor<2x8x32xf32>
  %x = pc.add %e, %p : (tensor<2x8x32xf32>, tensor<2x8x32xf32>) -> tensor<2x8x32xf32>
  %q = pc.einsum "b s e, k g d e -> b s k g d" %x, %query : (tensor<2x8x32xf32>, tensor<2x1x32x32xf32>) -> tensor<2x8x2x1x32xf32>
  %double = pc.scale %key by 2.0 : (tensor<2x32x32xf32>) -> tensor<2x32x32xf32>
  %k = pc.einsum "b s e, k d e -> b s k d" %x, %double : (tensor<2x8x32xf32>, tensor<2x32x32xf32>) -> tensor<2x8x2x32xf32>
  %o, %lse = pc.attention causal %q, %k, %k scale 0.1 : (tensor<2x8x2x1x32xf32>, tensor<2x8x2x32xf32>, tensor<2x8x2x32xf32>) -> (tensor<2x8x2x1x32xf32>, tensor<2x2x1x8xf32>)
  %y = pc.einsum "b s k g d, k g d e -> b s e" %o, %out : (tensor<2x8x2x1x32xf32>, tensor<2x1x32x32xf32>) -> tensor<2x8x32xf32>
  %there = pc.einsum "b s e, f e -> b s f" %y, %both : (tensor<2x8x32xf32>, tensor<32x32xf32>) -> tensor<2x8x32xf32>
  %back = pc.einsum "b s f, f e -> b s e" %there, %both : (tensor<2x8x32xf32>, tensor<32x32xf32>) -> tensor<2x8x32xf32>
  %up = pc.einsum "b s e, f e -> b s f" %back, %wide : (tensor<2x8x32xf32>, tensor<64x32xf32>) -> tensor<2x8x64xf32>
  %down = pc.einsum "b s f, f e -> b s e" %up, %narrow : (tensor<2x8x64xf32>, tensor<64x32xf32>) -> tensor<2x8x32xf32>
  %z = pc.add %x, %down : (tensor<2x8x32xf32>, tensor<2x8x32xf32>) -> tensor<2x8x32xf32>
  %n, %mean, %rstd = pc.layer_norm %z, %gamma, %gamma eps 1.0e-5 : (tensor<2x8x32xf32>, tensor<32xf32>, tensor<32xf32>) -> (tensor<2x8x32xf32>, tensor<2x8xf32>, tensor<2x8xf32>)
  %logits = pc.einsum "b s e, v e -> b s v" %n, %wte : (tensor<2x8x32xf32>, tensor<16x32xf32>) -> tensor<2x8x16xf32>
  pc.output logits "logits" %logits : tensor<2x8x16xf32>
  return
}
