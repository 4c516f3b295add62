// Warpgroup products run only on sm_90a, and so does their PTX.
// RUN: pc-kernels %s --arch=sm_90a | FileCheck %s
// CHECK: .target sm_90a
// CHECK: wgmma.fence.sync.aligned
// RUN: not pc-kernels %s --arch=sm_90a,sm_100a 2>&1 | FileCheck %s --check-prefix=ARCH
// ARCH: error: kernels that use warpgroup matrix products (wgmma) run only on sm_90a, not on sm_100a
gpu.module @kernels {
  gpu.func @fence() kernel {
    llvm.inline_asm has_side_effects "wgmma.fence.sync.aligned;", "~{memory}" : () -> ()
    gpu.return
  }
}
