// RUN: pc-opt %s --pc-fuse=target=cuda --pc-plan-memory=target=cuda --pc-generate-kernels=target=cuda | FileCheck %s

// Each function below shows how one kind of kernel accesses memory.
pc.mesh <dp = 1>
pc.program "m" batch 4 sequence 16 vocabulary 100 config "{}"

// The kernel reads rows of f32 and writes rows of bf16. Each access of a thread has 16 bytes, and those of a warp are
// contiguous. Neighbouring threads exchange halves of their bf16 vectors before they store them.
// CHECK-LABEL: gpu.func @pc_rms_norm_
// CHECK-SAME: known_block_size = array<i32: 32, 1, 1>
// CHECK-COUNT-4: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<4xf32>
// CHECK: gpu.shuffle xor
// CHECK-COUNT-2: llvm.store {{.*}} {alignment = 16 : i64} : vector<8xbf16>, !llvm.ptr
// CHECK: gpu.return

// A row that does not fill whole warps has vectors of 4, so that accesses of f32 have 16 bytes.
// CHECK-LABEL: gpu.func @pc_cast_
// CHECK: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<4xf32>
// CHECK: llvm.store {{.*}} {alignment = 8 : i64} : vector<4xbf16>, !llvm.ptr
// CHECK: gpu.return

// The kernel reads one element of each row, with one thread per row.
// CHECK-LABEL: gpu.func @pc_pick_
// CHECK-SAME: known_grid_size = array<i32: 1, 1, 1>
// CHECK: gpu.return

// A sum over many rows has two kernels. In the first, 264 blocks of 3 teams of 128 threads add four rows at a time; the
// second adds the blocks' sums.
// CHECK-LABEL: gpu.func @pc_einsum_
// CHECK-SAME: known_block_size = array<i32: 384, 1, 1>, known_grid_size = array<i32: 264, 1, 1>
// CHECK-COUNT-4: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<4xf32>
// CHECK: gpu.barrier
// CHECK: gpu.return
// CHECK-LABEL: gpu.func @pc_einsum_
// CHECK-SAME: known_grid_size = array<i32: 32, 1, 1>
// CHECK: gpu.return
// The row of this loss does not fit into registers. The maximum and the sum of exponentials are computed in one pass,
// in a loop over four vectors at a time and a loop over the rest. Shared memory keeps the row for the gradient.
// CHECK-LABEL: gpu.func @pc_fusion_
// CHECK: scf.for
// CHECK-COUNT-4: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<4xf32>
// CHECK-COUNT-4: llvm.store {{.*}} {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<3>
// CHECK: scf.for
// CHECK: gpu.barrier
// CHECK: scf.for
// CHECK-COUNT-4: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xf32>
// CHECK-NOT: !llvm.ptr -> vector
// CHECK: gpu.return
// cuBLASLt usually computes the gradient of a bias together with that of the weights. If it does not, the sum has two
// kernels, as above.
// CHECK-LABEL: gpu.func @pc_einsum_
// CHECK-SAME: known_grid_size = array<i32: 264, 1, 1>
// CHECK: gpu.return
// CHECK-LABEL: gpu.func @pc_einsum_
// CHECK-SAME: known_grid_size = array<i32: 4, 1, 1>
// CHECK: gpu.return
func.func @step() {
  %x = pc.parameter "x" dims ["row", "embed"] init <fill, 1.0> source <"x", shape = [16, 512], start = [0, 0], size = [16, 512]> global [16, 512] layout <[_, _]> : tensor<16x512xf32>
  %z = pc.parameter "z" dims ["odd"] init <fill, 1.0> source <"z", shape = [1200], start = [0], size = [1200]> global [1200] layout <[_]> : tensor<1200xf32>
  %long = pc.parameter "long" dims ["rows", "embed"] init <fill, 1.0> source <"long", shape = [1200, 512], start = [0, 0], size = [1200, 512]> global [1200, 512] layout <[_, _]> : tensor<1200x512xf32>
  %logits = pc.parameter "logits" dims ["row", "wide"] init <fill, 1.0> source <"logits", shape = [16, 20000], start = [0, 0], size = [16, 20000]> global [16, 20000] layout <[_, _]> : tensor<16x20000xf32>
  %g = pc.parameter "g" dims ["embed"] init <fill, 1.0> source <"g", shape = [512], start = [0], size = [512]> global [512] layout <[_]> : tensor<512xf32>
  %ids = pc.input targets dims ["row"] global [16] layout <[_]> : tensor<16xi32>
  %y, %rstd = pc.rms_norm %x, %g eps 1.0e-05 : (tensor<16x512xf32>, tensor<512xf32>) -> (tensor<16x512xbf16>, tensor<16xf32>)
  %half = pc.cast %z : (tensor<1200xf32>) -> tensor<1200xbf16>
  %one = pc.pick %x, %ids : (tensor<16x512xf32>, tensor<16xi32>) -> tensor<16xf32>
  %sum = pc.einsum "r e -> e" %long : (tensor<1200x512xf32>) -> tensor<512xf32>
  %max = pc.reduce_max "r c -> r" %logits : (tensor<16x20000xf32>) -> tensor<16xf32>
  %exps = pc.sum_exp %logits, %max : (tensor<16x20000xf32>, tensor<16xf32>) -> tensor<16xf32>
  %w = pc.parameter "w" dims ["row"] init <fill, 1.0> source <"w", shape = [16], start = [0], size = [16]> global [16] layout <[_]> : tensor<16xf32>
  %dlogits = pc.cross_entropy_grad %logits, %max, %exps, %ids, %w : (tensor<16x20000xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xi32>, tensor<16xf32>) -> tensor<16x20000xf32>
  %in = pc.parameter "in" dims ["rows", "in"] init <fill, 1.0> source <"in", shape = [4096, 32], start = [0, 0], size = [4096, 32]> global [4096, 32] layout <[_, _]> : tensor<4096x32xf32>
  %dy = pc.parameter "dy" dims ["rows", "out"] init <fill, 1.0> source <"dy", shape = [4096, 64], start = [0, 0], size = [4096, 64]> global [4096, 64] layout <[_, _]> : tensor<4096x64xf32>
  %dw = pc.einsum "r o, r i -> i o" %dy, %in : (tensor<4096x64xf32>, tensor<4096x32xf32>) -> tensor<32x64xf32>
  %db = pc.einsum "r o -> o" %dy : (tensor<4096x64xf32>) -> tensor<64xf32>
  pc.output gradient "dw" %dw global [32, 64] layout <[_, _]> : tensor<32x64xf32>
  pc.output gradient "db" %db global [64] layout <[_]> : tensor<64xf32>
  pc.output gradient "dlogits" %dlogits global [16, 20000] layout <[_, _]> : tensor<16x20000xf32>
  pc.output gradient "exps" %exps global [16] layout <[_]> : tensor<16xf32>
  pc.output gradient "x" %y global [16, 512] layout <[_, _]> : tensor<16x512xbf16>
  pc.output gradient "rows" %one global [16] layout <[_]> : tensor<16xf32>
  pc.output gradient "sum" %sum global [512] layout <[_]> : tensor<512xf32>
  return
}
