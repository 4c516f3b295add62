// Updates whose states are carried are sorted by size, smallest first, so that gradients are gone when the states of
// large parameters arrive. Ops with effects come before them, in their order.
// RUN: pc-opt %s --pc-differentiate=optimizer=adamw --pc-set-mesh=mesh=dp=2 --pc-data-parallel -o %t.placed
// RUN: pc-opt %t.placed --pc-offload --pc-localize --pc-verify-local --pc-fuse -o %t.local
// RUN: pc-opt %t.local --pc-schedule --pc-verify-scheduled -o %t.scheduled
// RUN: FileCheck %s < %t.scheduled
// CHECK: %[[TABLE:.*]] = pc.parameter "table"
// CHECK: %[[NORM:.*]] = pc.parameter "norm"
// CHECK: %[[UP:.*]] = pc.parameter "up"
// CHECK: pc.accumulate
// CHECK: pc.output gradient "table"
// CHECK: pc.output gradient "norm"
// CHECK: pc.output gradient "up"
// CHECK: pc.output grad_norm
// CHECK: pc.adamw %[[NORM]],
// CHECK: pc.adamw %[[UP]],
// CHECK: pc.adamw %[[TABLE]],

// A unit of carries is not larger than the states of the largest parameter: those of the table start when the unit
// before the last one has been read.
// RUN: FileCheck %s --check-prefix=UNITS < %t.scheduled
// UNITS: pc.accumulate
// UNITS: pc.start {{.*}}tensor<8xf32, #pc.space<disk>>{{.*}}tensor<8x8xf32, #pc.space<disk>>
// UNITS-NOT: pc.adamw
// UNITS: pc.start {{.*}}tensor<32x8xf32, #pc.space<disk>>
// UNITS: pc.adamw

// Nothing else changes: the order of a program without carries, and what the program computes.
// RUN: pc-opt %t.placed --pc-localize --pc-fuse --pc-schedule | FileCheck %s --check-prefix=PLAIN
// PLAIN: %[[TABLE:.*]] = pc.parameter "table"
// PLAIN: pc.adamw %[[TABLE]],
// RUN: pc-opt %t.scheduled --pc-plan-memory --pc-verify-memory --pc-verify-scheduled -o %t.planned
// RUN: pc-equal %t.local %t.scheduled
// RUN: pc-equal %t.local %t.planned
// RUN: pc-opt %s --pc-differentiate=optimizer=adamw -o %t.step
// RUN: pc-equal %t.step %t.planned

pc.program "sorted" batch 4 sequence 8 vocabulary 32 config "{}"
func.func @model() {
  %table = pc.parameter "table" dims ["vocab", "embed"] init <fill, 1.0> source <"table", shape = [32, 8], start = [0, 0], size = [32, 8]> : tensor<32x8xf32>
  %norm = pc.parameter "norm" dims ["embed"] init <fill, 1.0> source <"norm", shape = [8], start = [0], size = [8]> : tensor<8xf32>
  %up = pc.parameter "up" dims ["embed", "ffn"] init <fill, 1.0> source <"up", shape = [8, 8], start = [0, 0], size = [8, 8]> : tensor<8x8xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32>
  %targets = pc.input targets dims ["batch", "sequence"] : tensor<4x8xi32>
  %x = pc.embedding %table, %tokens : (tensor<32x8xf32>, tensor<4x8xi32>) -> tensor<4x8x8xf32>
  %scaled = pc.einsum "b s e, e -> b s e" %x, %norm : (tensor<4x8x8xf32>, tensor<8xf32>) -> tensor<4x8x8xf32>
  %h = pc.einsum "b s e, e f -> b s f" %scaled, %up : (tensor<4x8x8xf32>, tensor<8x8xf32>) -> tensor<4x8x8xf32>
  %y = pc.einsum "b s f, v f -> b s v" %h, %table : (tensor<4x8x8xf32>, tensor<32x8xf32>) -> tensor<4x8x32xf32>
  %nll = pc.cross_entropy %y, %targets : (tensor<4x8x32xf32>, tensor<4x8xi32>) -> tensor<4x8xf32>
  %sum = pc.einsum "b s ->" %nll : (tensor<4x8xf32>) -> tensor<f32>
  %loss = pc.scale %sum by 0.03125 : (tensor<f32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
