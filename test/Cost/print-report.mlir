// RUN: pc-opt %s --pc-plan-memory --pc-print-report="plan=by-hand" | FileCheck %s

// The program is one linear layer on dp=2, tp=2: two microbatches of 4 rows (2 per rank), width 8, 16 outputs (8 per
// rank).
pc.mesh <dp = 2, tp = 2>

// CHECK: "flops_per_step": [[#mul(mul(4, 2), mul(2, mul(mul(2, 8), 8)))]],
// 4 ranks times 2 microbatches times 2 x (2 x 8 x 8), for the only product that sums.
// CHECK-NEXT: "mesh": {
// CHECK-NEXT:   "dp": 2,
// CHECK-NEXT:   "tp": 2
// CHECK-NEXT: },
// This product is in the forward pass. If anything is updated, its gradients need twice as many flops.
// CHECK-NEXT: "model_flops": {
// CHECK-NEXT:   "bf16": 0,
// CHECK-NEXT:   "f32": [[#mul(1, mul(mul(4, 2), mul(2, mul(mul(2, 8), 8))))]]
// CHECK-NEXT: },
// The parameter has 8 x 15 elements; the 16th column is padding. The second box is the same tied parameter.
// CHECK-NEXT: "parameters": 120,
// CHECK-NEXT: "per_rank": [
// CHECK: "arena_bytes": {
// CHECK-NEXT:   "device": 1216,
// CHECK-NEXT:   "host": 0
// The peak is where the gradient is computed: the gradient (8 x 8 x 4 = 256), the sum of gradients (256), %d (32, with
// alignment 64), and %f (64), which is not in the body and counts as workspace, as does the input (64). The two leaves
// have 8 x 8 x 4 = 256 each. The total is 512 + 64 + 512 + 128 = 1216.
// CHECK: "memory": {
// CHECK-NEXT:   "activations": 64,
// CHECK-NEXT:   "communication": 0,
// CHECK-NEXT:   "gradients": 512,
// CHECK-NEXT:   "optimizer": 0,
// CHECK-NEXT:   "parameters": 512,
// CHECK-NEXT:   "workspace": 128
// CHECK: "ranks": [
// CHECK-NEXT: 0,
// CHECK-NEXT: 1,
// CHECK-NEXT: 2,
// CHECK-NEXT: 3
// CHECK: "traffic": [
// The gradient is reduced over both axes once per step: 8 x 8 x 4 = 256 bytes among 4 ranks, so each sends 2 x 3 x 256
// / 4 = 384.
// CHECK:      "axis": "dp+tp",
// CHECK-NEXT: "count": 1,
// CHECK-NEXT: "move": "all_reduce",
// CHECK-NEXT: "payload_bytes": 256,
// CHECK-NEXT: "phase": "optimizer",
// CHECK-NEXT: "wire_bytes": 384
// This move is in the forward pass of the body, so it runs twice per step. It has 2 x 16 x 4 = 128 bytes, of which a
// rank sends half.
// CHECK:      "axis": "tp",
// CHECK-NEXT: "count": 2,
// CHECK-NEXT: "move": "all_gather",
// CHECK-NEXT: "payload_bytes": 256,
// CHECK-NEXT: "phase": "forward",
// CHECK-NEXT: "wire_bytes": 128
// 2 ranks have 2 x 8 x 4 = 64 bytes each, so the whole has 128. A rank sends half of its own part.
// CHECK:      "axis": "tp",
// CHECK-NEXT: "count": 2,
// CHECK-NEXT: "move": "all_to_all",
// CHECK-NEXT: "payload_bytes": 256,
// CHECK-NEXT: "phase": "backward",
// CHECK-NEXT: "wire_bytes": 64
// This move comes after the seed. It has 2 x 8 x 4 = 64 bytes, of which a rank sends half.
// CHECK:      "axis": "tp",
// CHECK-NEXT: "count": 2,
// CHECK-NEXT: "move": "reduce_scatter",
// CHECK-NEXT: "payload_bytes": 128,
// CHECK-NEXT: "phase": "backward",
// CHECK-NEXT: "wire_bytes": 64
// Slices send nothing and are not listed.
// CHECK-NOT: "slice"
// CHECK: "plan": "by-hand"
func.func @step() {
  %w = pc.parameter "w" dims ["a", "b"] init <fill, 1.0> source <"w", shape = [8, 15], start = [0, 0], size = [8, 15]> valid [8, 15] global [8, 16] layout <[_, tp]> : tensor<8x8xf32>
  %tied = pc.parameter "tied" dims ["a", "b"] init <fill, 1.0> source <"w", shape = [8, 15], start = [0, 0], size = [8, 15]> valid [8, 15] global [8, 16] layout <[_, tp]> : tensor<8x8xf32>
  %x = pc.input tokens dims ["microbatch", "batch"] global [2, 4] layout <[_, dp]> : tensor<2x2xi32>
  %i = pc.iota -> tensor<8xi32>
  %f = pc.cast %i : (tensor<8xi32>) -> tensor<8xf32>
  %r = pc.accumulate (%t = %x : tensor<2x2xi32> -> tensor<2xi32>) {
    %c = pc.cast %t : (tensor<2xi32>) -> tensor<2xf32>
    %o = pc.einsum "s, a -> s a" %c, %f : (tensor<2xf32>, tensor<8xf32>) -> tensor<2x8xf32>
    %a = pc.einsum "s a, a b -> s b" %o, %w : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %g = pc.all_gather %a dim 1 on ["tp"] : (tensor<2x8xf32>) -> tensor<2x16xf32>
    %n = pc.einsum "s b ->" %g : (tensor<2x16xf32>) -> tensor<f32>
    %seed = pc.seed : tensor<f32>
    %p = pc.einsum ", s b -> s b" %n, %a : (tensor<f32>, tensor<2x8xf32>) -> tensor<2x8xf32>
    %q = pc.all_to_all %p from 1 to 0 on ["tp"] : (tensor<2x8xf32>) -> tensor<1x16xf32>
    %q0 = pc.slice %q dim 1 on ["tp"] : (tensor<1x16xf32>) -> tensor<1x8xf32>
    %u = pc.reduce_scatter sum %p dim 1 on ["tp"] : (tensor<2x8xf32>) -> tensor<2x4xf32>
    %d = pc.einsum "s c -> c" %q0 : (tensor<1x8xf32>) -> tensor<8xf32>
    %dw = pc.einsum "a, b -> a b" %d, %f : (tensor<8xf32>, tensor<8xf32>) -> tensor<8x8xf32>
    pc.yield %dw : tensor<8x8xf32>
  } : tensor<8x8xf32>
  %all = pc.all_reduce sum %r on ["dp", "tp"] : (tensor<8x8xf32>) -> tensor<8x8xf32>
  pc.output gradient "w" %all global [8, 16] layout <[_, tp]> : tensor<8x8xf32>
  return
}
