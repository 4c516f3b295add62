// ptxas accepts every architecture, and its figures are recorded.
// REQUIRES: ptxas
// RUN: pc-kernels %s --emit=table | FileCheck %s
// CHECK: {"arch":"sm_80","kernel":"tanh","registers":{{[1-9][0-9]*}},"shared":512,"spill_loads":0,"spill_stores":0,"stack":0,"threads":128}
// CHECK: {"arch":"sm_90a","kernel":"tanh"
// CHECK: {"arch":"sm_100a","kernel":"tanh"
module {
  gpu.module @kernels {
    gpu.func @tanh(%x: memref<128xf32>) workgroup(%s : memref<128xf32, #gpu.address_space<workgroup>>) kernel attributes {nvvm.maxntid = array<i32: 128, 1, 1>} {
      %c127 = arith.constant 127 : index
      %t = gpu.thread_id x
      %v = memref.load %x[%t] : memref<128xf32>
      %w = math.tanh %v : f32
      memref.store %w, %s[%t] : memref<128xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %r = arith.subi %c127, %t : index
      %u = memref.load %s[%r] : memref<128xf32, #gpu.address_space<workgroup>>
      memref.store %u, %x[%t] : memref<128xf32>
      gpu.return
    }
  }
}
