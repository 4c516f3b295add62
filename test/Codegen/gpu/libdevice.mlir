// exp, log, tanh, erf, sin and cos have a replacement (intact.mlir). Other functions need libdevice, and an error says
// so.
// RUN: not pc-kernels %s --cuda-path=/nonexistent 2>&1 | FileCheck %s
// CHECK: error: the kernels call the functions __nv_tanf of CUDA's libdevice, but there is no libdevice.10.bc (looked in /nonexistent); install the CUDA toolkit, or set CUDA_HOME to its directory
module {
  gpu.module @kernels {
    gpu.func @tan(%x: memref<32xf32>) kernel {
      %t = gpu.thread_id x
      %v = memref.load %x[%t] : memref<32xf32>
      %w = math.tan %v : f32
      memref.store %w, %x[%t] : memref<32xf32>
      gpu.return
    }
  }
}
