// Each of two stages has its own program, with tasks in the order of the schedule (1F1B) and messages to the other.
// Both have the tied table, and exchange its gradient.
// RUN: pc-opt %s --pc-differentiate=microbatches=2 --pc-set-mesh=mesh=pp=2 --pc-pipeline-parallel --pc-verify-staged | FileCheck %s
// CHECK: module @stage0
// CHECK: pc.parameter "h.1.up"
// CHECK: pc.task forward chunk 0 microbatch 0
// CHECK: pc.send {{.*}} to 1 flow 0 message 0
// CHECK: pc.task forward chunk 0 microbatch 1
// CHECK: pc.task backward chunk 0 microbatch 0
// CHECK-NEXT: pc.receive from 1 flow 1 message 0
// CHECK: pc.task optimizer
// CHECK: pc.send {{.*}} : tensor<16x8xf32
// CHECK: module @stage1
// CHECK-NOT: pc.parameter "h.
// CHECK: pc.task forward chunk 1 microbatch 0
// CHECK-NEXT: pc.receive from 0 flow 0 message 0
// CHECK: pc.task backward chunk 1 microbatch 0
// CHECK: pc.task forward chunk 1 microbatch 1
// CHECK: pc.task optimizer

pc.program "layers" batch 4 sequence 4 vocabulary 16 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32> loc("w")
  %a = pc.parameter "h.0.up" dims ["embed", "ffn"] init <fill, 1.0> source <"a", shape = [8, 8], start = [0, 0], size = [8, 8]> : tensor<8x8xf32> loc("h.0.up")
  %b = pc.parameter "h.1.up" dims ["embed", "ffn"] init <fill, 1.0> source <"b", shape = [8, 8], start = [0, 0], size = [8, 8]> : tensor<8x8xf32> loc("h.1.up")
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x4xi32>
  %targets = pc.input targets dims ["batch", "sequence"] : tensor<4x4xi32>
  %x = pc.embedding %w, %tokens : (tensor<16x8xf32>, tensor<4x4xi32>) -> tensor<4x4x8xf32> loc("w")
  %y = pc.einsum "b s e, e f -> b s f" %x, %a : (tensor<4x4x8xf32>, tensor<8x8xf32>) -> tensor<4x4x8xf32> loc("h.0.up")
  %s = pc.activation silu %y : (tensor<4x4x8xf32>) -> tensor<4x4x8xf32> loc("h.0.act")
  %z = pc.einsum "b s e, e f -> b s f" %s, %b : (tensor<4x4x8xf32>, tensor<8x8xf32>) -> tensor<4x4x8xf32> loc("h.1.up")
  %l = pc.einsum "b s e, v e -> b s v" %z, %w : (tensor<4x4x8xf32>, tensor<16x8xf32>) -> tensor<4x4x16xf32> loc("head")
  %nll = pc.cross_entropy %l, %targets : (tensor<4x4x16xf32>, tensor<4x4xi32>) -> tensor<4x4xf32> loc("loss")
  %sum = pc.einsum "b s ->" %nll : (tensor<4x4xf32>) -> tensor<f32> loc("loss")
  pc.output loss "loss" %sum : tensor<f32>
  return
}
