// The PTX is for the base of the lowest architecture that is asked for.
// RUN: pc-kernels %s --arch=sm_100a,sm_90a --cuda-path=/nonexistent | FileCheck %s
// RUN: pc-kernels %s --cuda-path=/nonexistent --emit=table 2>&1 | FileCheck %s --check-prefix=REMARK
// REMARK: remark: ptxas was not found (looked in /nonexistent): the program contains only PTX
// CHECK: .target sm_90{{$}}
// The shared memory of the launch is external and has no static size. There are no line tables.
// CHECK: .extern .shared .align 16 .b8 __dynamic_shmem__0[];
// CHECK-NOT: .loc
// CHECK: .entry reverse
// CHECK: .reqntid 256
// CHECK: bar.sync
// The sum of a subgroup takes five shuffles.
// CHECK: .entry lane_sum
// CHECK-COUNT-5: shfl.sync.bfly
// CHECK: .entry add4
// CHECK: ld{{.*}}.v4.b32

// The same input gives the same bytes.
// RUN: pc-kernels %s --emit=host -o %t.a && pc-kernels %s --emit=host -o %t.b && cmp %t.a %t.b

// RUN: not pc-kernels %s --arch=sm_75 2>&1 | FileCheck %s --check-prefix=ARCH
// ARCH: error: unknown GPU architecture sm_75; expected sm_80 or newer, as in sm_90a

module {
  gpu.module @kernels {
    gpu.func @reverse(%x: memref<256xf32>, %y: memref<256xf32>) kernel attributes {nvvm.reqntid = array<i32: 256, 1, 1>} {
      %c0 = arith.constant 0 : index
      %c255 = arith.constant 255 : index
      %t = gpu.thread_id x
      %bytes = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
      %s = memref.view %bytes[%c0][] : memref<?xi8, #gpu.address_space<workgroup>> to memref<256xf32, #gpu.address_space<workgroup>>
      %v = memref.load %x[%t] : memref<256xf32>
      memref.store %v, %s[%t] : memref<256xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %r = arith.subi %c255, %t : index
      %w = memref.load %s[%r] : memref<256xf32, #gpu.address_space<workgroup>>
      memref.store %w, %y[%t] : memref<256xf32>
      gpu.return
    }
    gpu.func @lane_sum(%x: memref<32xf32>, %y: memref<32xf32>) kernel {
      %t = gpu.thread_id x
      %v = memref.load %x[%t] : memref<32xf32>
      %s = gpu.subgroup_reduce add %v : (f32) -> f32
      memref.store %s, %y[%t] : memref<32xf32>
      gpu.return
    }
    // Pointers and ops of the LLVM dialect do not change.
    gpu.func @add4(%x: !llvm.ptr {llvm.noalias}, %y: !llvm.ptr {llvm.noalias}) kernel {
      %t = gpu.thread_id x
      %i = arith.index_cast %t : index to i64
      %p = llvm.getelementptr inbounds %x[%i] : (!llvm.ptr, i64) -> !llvm.ptr, vector<4xf32>
      %q = llvm.getelementptr inbounds %y[%i] : (!llvm.ptr, i64) -> !llvm.ptr, vector<4xf32>
      %v = llvm.load %p {alignment = 16 : i64} : !llvm.ptr -> vector<4xf32>
      %w = llvm.fadd %v, %v : vector<4xf32>
      llvm.store %w, %q {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr
      gpu.return
    }
  }
}
