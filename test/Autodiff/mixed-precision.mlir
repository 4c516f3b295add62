// RUN: pc-opt %s --pc-differentiate=microbatches=2 -o %t.step
// RUN: pc-opt %t.step --pc-mixed-precision=residual=f32 | FileCheck %s
// RUN: pc-opt %t.step --pc-mixed-precision | FileCheck %s --check-prefix=RESIDUAL
// RUN: pc-opt %t.step --pc-mixed-precision=gradients=bf16 | FileCheck %s --check-prefix=GRADIENTS
// RUN: pc-opt %t.step --pc-mixed-precision="residual=f32 tables=bf16" | FileCheck %s --check-prefix=TABLES
// RUN: pc-opt %s --pc-differentiate -o %t.one
// RUN: pc-opt %t.one --pc-mixed-precision=gradients=bf16 | tee %t.stored | FileCheck %s --check-prefix=STORED
// RUN: pc-equal %t.one %t.stored | FileCheck %s --check-prefix=EQUAL
// RUN: pc-equal --rounded %t.one %t.stored | FileCheck %s --check-prefix=EQUAL
// RUN: pc-opt %t.step --pc-mixed-precision=compute=f32 | diff - %t.step
// RUN: not pc-opt %t.step --pc-mixed-precision=compute=fp4 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// In exact arithmetic the program computes what it did before. With rounding, results are close.
// RUN: pc-opt %t.step --pc-mixed-precision="gradients=bf16 tables=bf16" -o %t
// RUN: pc-equal %t.step %t | FileCheck %s --check-prefix=EQUAL
// RUN: pc-equal --rounded %t.step %t | FileCheck %s --check-prefix=EQUAL

// UNKNOWN: error: pc-mixed-precision: unknown compute 'fp4' (f32, bf16, fp8)
// EQUAL: {{^}}equal

// The parameter is cast once, before the accumulation. The product that gives its gradient is f32.
// CHECK: %[[W:.*]] = pc.parameter "w"
// CHECK-NEXT: %[[NARROW:.*]] = pc.cast %[[W]] : (tensor<8x16xf32>) -> tensor<8x16xbf16>
// CHECK: pc.accumulate
// CHECK: %[[X:.*]] = pc.embedding {{.*}} -> tensor<2x4x8xf32>
// CHECK: pc.rms_norm %[[X]]{{.*}} -> (tensor<2x4x8xbf16>, tensor<2x4xf32>)
// CHECK: pc.einsum "b s e, e f -> b s f" %{{.*}}, %[[NARROW]] : (tensor<2x4x8xbf16>, tensor<8x16xbf16>) -> tensor<2x4x16xbf16>
// A broadcast bias does not widen the sum.
// CHECK: pc.add {{.*}} : (tensor<2x4x16xbf16>, tensor<2x4x16xf32>) -> tensor<2x4x16xbf16>
// CHECK: pc.activation {{.*}} -> tensor<2x4x16xbf16>
// With residual=f32 the residual stream is f32, as is the embedding that it begins with.
// CHECK: %[[R:.*]] = pc.add %[[X]], %{{.*}} : (tensor<2x4x8xf32>, tensor<2x4x8xbf16>) -> tensor<2x4x8xf32>
// CHECK: %[[NARROWR:.*]] = pc.cast %[[R]] : (tensor<2x4x8xf32>) -> tensor<2x4x8xbf16>
// CHECK: %[[L:.*]] = pc.einsum "b s e, v e -> b s v" %[[NARROWR]]
// CHECK: pc.reduce_max {{.*}} (tensor<2x4x10xbf16>) -> tensor<2x4xf32>
// CHECK: pc.cross_entropy_grad %[[L]]{{.*}} -> tensor<2x4x10xbf16>
// CHECK: pc.einsum "b s v, b s e -> v e" {{.*}} -> tensor<10x8xf32>
// CHECK: pc.activation_grad {{.*}} -> tensor<2x4x16xbf16>
// CHECK: pc.einsum "b s f -> f" {{.*}} : (tensor<2x4x16xbf16>) -> tensor<16xf32>
// CHECK: pc.einsum "b s f, b s e -> e f" {{.*}} : (tensor<2x4x16xbf16>, tensor<2x4x8xbf16>) -> tensor<8x16xf32>
// CHECK: pc.rms_norm_grad {{.*}} -> (tensor<2x4x8xf32>, tensor<8xf32>)
// CHECK: pc.yield
// CHECK-NOT: bf16
// CHECK: pc.adamw

// TABLES: %[[TABLE:.*]] = pc.cast {{.*}} : (tensor<10x8xf32>) -> tensor<10x8xbf16>
// TABLES: pc.embedding %[[TABLE]], {{.*}} -> tensor<2x4x8xf32>

// RESIDUAL: pc.embedding {{.*}} -> tensor<2x4x8xbf16>
// RESIDUAL: pc.rms_norm_grad {{.*}} -> (tensor<2x4x8xbf16>, tensor<8xf32>)

// GRADIENTS: %[[SUM:.*]]:{{.*}} = pc.accumulate
// GRADIENTS: %[[G:.*]] = pc.cast %[[SUM]]#1 : (tensor<10x8xf32>) -> tensor<10x8xbf16>
// GRADIENTS-NEXT: pc.cast %[[G]] : (tensor<10x8xbf16>) -> tensor<10x8xf32>

// With one microbatch, products give bf16 gradients. Gradients from other ops are rounded at the end of the backward
// pass.
// STORED: pc.einsum "b s f, b s e -> e f" {{.*}} -> tensor<8x16xbf16>
// STORED: pc.cast {{.*}} : (tensor<8xf32>) -> tensor<8xbf16>
// STORED: pc.yield {{.*}} : tensor<f32>, tensor<10x8xbf16>, tensor<8xbf16>, tensor<8x16xbf16>
// STORED: pc.adamw {{.*}} tensor<10x8xbf16>

pc.program "m" batch 4 sequence 4 vocabulary 10 config "{}"
func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x4xi32>
  %targets = pc.input targets dims ["batch", "sequence"] : tensor<4x4xi32>
  %table = pc.parameter "table" dims ["vocab", "embed"] init <normal, 0.02> source <"table", shape = [10, 8], start = [0, 0], size = [10, 8]> : tensor<10x8xf32>
  %g = pc.parameter "g" dims ["embed"] init <fill, 1.0> source <"g", shape = [8], start = [0], size = [8]> : tensor<8xf32>
  %w = pc.parameter "w" dims ["embed", "ffn"] init <normal, 0.02> source <"w", shape = [8, 16], start = [0, 0], size = [8, 16]> : tensor<8x16xf32>
  %b = pc.parameter "b" dims ["ffn"] init <fill, 0.0> source <"b", shape = [16], start = [0], size = [16]> : tensor<16xf32>
  %u = pc.parameter "u" dims ["ffn", "embed"] init <normal, 0.02> source <"u", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %x = pc.embedding %table, %tokens : (tensor<10x8xf32>, tensor<4x4xi32>) -> tensor<4x4x8xf32>
  %y, %r = pc.rms_norm %x, %g eps 1.0e-5 : (tensor<4x4x8xf32>, tensor<8xf32>) -> (tensor<4x4x8xf32>, tensor<4x4xf32>)
  %h = pc.einsum "b s e, e f -> b s f" %y, %w : (tensor<4x4x8xf32>, tensor<8x16xf32>) -> tensor<4x4x16xf32>
  %bias = pc.einsum "f -> b s f" %b : (tensor<16xf32>) -> tensor<4x4x16xf32>
  %sum = pc.add %h, %bias : (tensor<4x4x16xf32>, tensor<4x4x16xf32>) -> tensor<4x4x16xf32>
  %a = pc.activation silu %sum : (tensor<4x4x16xf32>) -> tensor<4x4x16xf32>
  %z = pc.einsum "b s f, f e -> b s e" %a, %u : (tensor<4x4x16xf32>, tensor<16x8xf32>) -> tensor<4x4x8xf32>
  %residual = pc.add %x, %z : (tensor<4x4x8xf32>, tensor<4x4x8xf32>) -> tensor<4x4x8xf32>
  %logits = pc.einsum "b s e, v e -> b s v" %residual, %table : (tensor<4x4x8xf32>, tensor<10x8xf32>) -> tensor<4x4x10xf32>
  %nll = pc.cross_entropy %logits, %targets : (tensor<4x4x10xf32>, tensor<4x4xi32>) -> tensor<4x4xf32>
  %total = pc.einsum "b s -> " %nll : (tensor<4x4xf32>) -> tensor<f32>
  %loss = pc.scale %total by 0.0625 : (tensor<f32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
