// A kernel whose accesses cannot be counted is refused.
// RUN: not pc-kernels %s --emit=accesses 2>&1 | FileCheck %s
gpu.module @kernels {
  gpu.func @atomic(%x: !llvm.ptr) kernel attributes {known_grid_size = array<i32: 1, 1, 1>, known_block_size = array<i32: 8, 1, 1>} {
    %one = arith.constant 1 : i32
    // CHECK: error: 'llvm.atomicrmw' op accesses memory in a way that this report cannot count
    %old = llvm.atomicrmw add %x, %one monotonic : !llvm.ptr, i32
    gpu.return
  }
}
