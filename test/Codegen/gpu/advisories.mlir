// What ptxas says about a kernel besides figures is a warning. Here a sum is used before the wait for its product.
// REQUIRES: ptxas
// RUN: pc-kernels %s --arch=sm_90a --emit=table 2>&1 | FileCheck %s
// CHECK: warning: ptxas for sm_90a says: (C75{{[0-9]+}}) {{.*}} in function 'early'
// CHECK: "kernel":"early"
gpu.module @kernels {
  gpu.func @early(%x: !llvm.ptr, %descriptor: i64) kernel attributes {nvvm.maxntid = array<i32: 128, 1, 1>} {
    %zero = arith.constant 0.0 : f32
    %sums = llvm.inline_asm has_side_effects "{ .reg .pred adds; setp.ne.b32 adds, 1, 0; wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1, $2, $3}, $4, $4, adds, 1, 1, 0, 0; wgmma.commit_group.sync.aligned; }", "=f,=f,=f,=f,l,0,1,2,3,~{memory}" %descriptor, %zero, %zero, %zero, %zero : (i64, f32, f32, f32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
    %sum = llvm.extractvalue %sums[0] : !llvm.struct<(f32, f32, f32, f32)>
    llvm.store %sum, %x : f32, !llvm.ptr
    llvm.inline_asm has_side_effects "wgmma.wait_group.sync.aligned 0;", "~{memory}" : () -> ()
    gpu.return
  }
}
