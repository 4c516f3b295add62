// RUN: pc-opt %s --pc-plan-memory --pc-generate-kernels | FileCheck %s

// The step calls the runtime with addresses in the arena, and returns the first status that is not 0. With two
// microbatches, the first product writes the weight gradient and the second adds to it, without a separate kernel.

// CHECK: llvm.func @pc_step(%[[CTX:.*]]: !llvm.ptr, %[[ARENA:.*]]: !llvm.ptr) -> i32
// CHECK: llvm.br ^[[LOOP:bb[0-9]+]](%{{.*}} : i64)
// CHECK: ^[[LOOP]](%[[M:.*]]: i64):
// CHECK: llvm.call @pcrt_launch(%[[CTX]],
// CHECK: llvm.cond_br
// CHECK: %[[FIRST:.*]] = llvm.icmp "eq" %[[M]], %{{.*}} : i64
// CHECK: %[[PRODUCT:.*]] = llvm.select %[[FIRST]], %{{.*}}, %{{.*}} : i1, i32
// CHECK: llvm.call @pcrt_gemm(%[[CTX]], %[[PRODUCT]],
// CHECK: llvm.icmp "slt"
// CHECK: llvm.cond_br %{{.*}}, ^[[LOOP]](%{{.*}} : i64)
// CHECK: llvm.call @pcrt_observe(%[[CTX]],
// CHECK: llvm.mlir.global external constant @pc_program
pc.mesh <dp = 1>
pc.program "m" batch 8 sequence 1 vocabulary 5 config "{}"
func.func @step() {
  %t = pc.input tokens dims ["microbatch", "batch"] global [2, 4] layout <[_, _]> : tensor<2x4xi32>
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [5, 3], start = [0, 0], size = [5, 3]> global [5, 3] layout <[_, _]> : tensor<5x3xf32>
  %g = pc.accumulate (%ids = %t : tensor<2x4xi32> -> tensor<4xi32>) {
    %e = pc.embedding %w, %ids : (tensor<5x3xf32>, tensor<4xi32>) -> tensor<4x3xf32>
    %p = pc.einsum "i e, i f -> e f" %e, %e : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<3x3xf32>
    pc.yield %p : tensor<3x3xf32>
  } : tensor<3x3xf32>
  pc.output gradient "g" %g global [3, 3] layout <[_, _]> : tensor<3x3xf32>
  return
}
