// RUN: pc-opt %s --pc-fuse=target=cuda --pc-plan-memory=target=cuda --pc-generate-kernels=target=cuda | FileCheck %s

// Kernels are gpu.funcs whose arguments are the addresses of buffers. The table has their entry points, grids and
// blocks. A later pass adds the images.
pc.mesh <dp = 1>
pc.program "m" batch 4 sequence 16 vocabulary 100 config "{}"

// CHECK: llvm.func @pc_step
// CHECK: llvm.call @pcrt_launch
// CHECK: gpu.module @pc_kernels {

// Each row has one warp. A thread loads its three vectors of the row once, and they stay in registers. Shuffles compute
// the sum, so there is no loop and no barrier.
// CHECK-LABEL: gpu.func @pc_layer_norm_
// CHECK-SAME: (%[[X:.*]]: !llvm.ptr, %{{.*}}: !llvm.ptr, %{{.*}}: !llvm.ptr, %{{.*}}: !llvm.ptr, %{{.*}}: !llvm.ptr, %{{.*}}: !llvm.ptr)
// CHECK-SAME: kernel attributes {{.*}}known_block_size = array<i32: 32, 1, 1>
// CHECK-COUNT-3: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<4xf32>
// CHECK-NOT: gpu.barrier
// CHECK-NOT: scf.for
// CHECK-COUNT-10: gpu.shuffle xor
// CHECK-NOT: scf.for
// CHECK: gpu.return

// A row of 40000 columns does not fit into registers. A block loops over it, and its warps combine their sums in shared
// memory.
// CHECK-LABEL: gpu.func @pc_reduce_max_
// CHECK-SAME: known_block_size = array<i32: 512, 1, 1>
// CHECK: scf.for
// CHECK: arith.maximumf
// CHECK: gpu.shuffle xor
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<3>
// CHECK: gpu.barrier
// CHECK: gpu.return

// One launch of the optimizer updates both parameters. It gets the address of the arena and a table of their offsets.
// CHECK: llvm.mlir.global internal constant @pc_adamw_all_{{.*}}_table
// CHECK-LABEL: gpu.func @pc_adamw_all_
// CHECK-SAME: (%{{.*}}: !llvm.ptr) kernel
// CHECK: llvm.mlir.global internal constant @pc_device_kernels
func.func @step() {
  %x = pc.parameter "x" dims ["row", "embed"] init <fill, 1.0> source <"x", shape = [64, 384], start = [0, 0], size = [64, 384]> global [64, 384] layout <[_, _]> : tensor<64x384xf32>
  %y = pc.parameter "y" dims ["row", "wide"] init <fill, 1.0> source <"y", shape = [64, 40000], start = [0, 0], size = [64, 40000]> global [64, 40000] layout <[_, _]> : tensor<64x40000xf32>
  %g = pc.parameter "g" dims ["embed"] init <fill, 1.0> source <"g", shape = [384], start = [0], size = [384]> global [384] layout <[_]> : tensor<384xf32>
  %xm = pc.state "exp_avg" of "x" dims ["row", "embed"] global [64, 384] layout <[_, _]> : tensor<64x384xf32>
  %xv = pc.state "exp_avg_sq" of "x" dims ["row", "embed"] global [64, 384] layout <[_, _]> : tensor<64x384xf32>
  %ym = pc.state "exp_avg" of "y" dims ["row", "wide"] global [64, 40000] layout <[_, _]> : tensor<64x40000xf32>
  %yv = pc.state "exp_avg_sq" of "y" dims ["row", "wide"] global [64, 40000] layout <[_, _]> : tensor<64x40000xf32>
  %hyper = pc.input hyper dims ["h"] global [9] layout <[_]> : tensor<9xf32>
  %n, %mean, %rstd = pc.layer_norm %x, %g, %g eps 1.0e-05 : (tensor<64x384xf32>, tensor<384xf32>, tensor<384xf32>) -> (tensor<64x384xf32>, tensor<64xf32>, tensor<64xf32>)
  %max = pc.reduce_max "r c -> r" %y : (tensor<64x40000xf32>) -> tensor<64xf32>
  %c = pc.constant 1.0 : tensor<f32>
  pc.output gradient "x" %n global [64, 384] layout <[_, _]> : tensor<64x384xf32>
  pc.output gradient "g" %max global [64] layout <[_]> : tensor<64xf32>
  %x1, %xm1, %xv1 = pc.adamw %x, %n, %xm, %xv, %c, %hyper : (tensor<64x384xf32>, tensor<64x384xf32>, tensor<64x384xf32>, tensor<64x384xf32>, tensor<f32>, tensor<9xf32>) -> (tensor<64x384xf32>, tensor<64x384xf32>, tensor<64x384xf32>)
  pc.update "x" %x1 : tensor<64x384xf32>
  pc.update "exp_avg" of "x" %xm1 : tensor<64x384xf32>
  pc.update "exp_avg_sq" of "x" %xv1 : tensor<64x384xf32>
  %y1, %ym1, %yv1 = pc.adamw %y, %y, %ym, %yv, %c, %hyper : (tensor<64x40000xf32>, tensor<64x40000xf32>, tensor<64x40000xf32>, tensor<64x40000xf32>, tensor<f32>, tensor<9xf32>) -> (tensor<64x40000xf32>, tensor<64x40000xf32>, tensor<64x40000xf32>)
  pc.update "y" %y1 : tensor<64x40000xf32>
  pc.update "exp_avg" of "y" %ym1 : tensor<64x40000xf32>
  pc.update "exp_avg_sq" of "y" %yv1 : tensor<64x40000xf32>
  return
}
