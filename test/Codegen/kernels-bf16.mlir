// RUN: pc-opt %s --pc-plan-memory --pc-generate-kernels="lanes=16 rounds-to-bf16" | FileCheck %s
// RUN: pc-opt %s --pc-plan-memory --pc-generate-kernels=lanes=16 | FileCheck %s --check-prefix=WITHOUT

// On a CPU with AVX512_BF16, attention has two forms: products of pairs of bf16, and f32 products of the same numbers. The runtime chooses.

pc.mesh <dp = 1>
pc.program "m" batch 2 sequence 40 vocabulary 100 config "{}"

func.func @step() {
  %q32 = pc.parameter "q" dims ["b", "s", "k", "g", "d"] init <fill, 1.0> source <"q", shape = [2, 40, 2, 1, 32], start = [0, 0, 0, 0, 0], size = [2, 40, 2, 1, 32]> global [2, 40, 2, 1, 32] layout <[_, _, _, _, _]> : tensor<2x40x2x1x32xf32>
  %k32 = pc.parameter "k" dims ["b", "t", "k", "d"] init <fill, 1.0> source <"k", shape = [2, 40, 2, 32], start = [0, 0, 0, 0], size = [2, 40, 2, 32]> global [2, 40, 2, 32] layout <[_, _, _, _]> : tensor<2x40x2x32xf32>
  %q = pc.cast %q32 : (tensor<2x40x2x1x32xf32>) -> tensor<2x40x2x1x32xbf16>
  %k = pc.cast %k32 : (tensor<2x40x2x32xf32>) -> tensor<2x40x2x32xbf16>

  // CHECK-LABEL: llvm.func internal @pc_attention_{{[0-9]+}}(
  // CHECK: llvm.x86.avx512bf16.dpbf16ps.512
  // CHECK: arith.truncf {{.*}} to vector<16xbf16>
  // CHECK: llvm.return
  // CHECK-LABEL: llvm.func internal @pc_attention_{{[0-9]+}}_f32(
  // CHECK-NOT: dpbf16ps
  // CHECK: vector.fma
  // CHECK: arith.truncf {{.*}} to vector<16xbf16>
  // CHECK: llvm.return
  // CHECK: llvm.mlir.global internal constant @pc_kernel_table
  // CHECK: llvm.mlir.addressof @[[F:pc_attention_[0-9]+]] :
  // CHECK-NOT: llvm.mlir.addressof
  // CHECK: llvm.mlir.addressof @[[F]]_f32 :
  // WITHOUT-NOT: dpbf16ps
  // WITHOUT-NOT: _f32
  %o, %lse = pc.attention causal %q, %k, %k scale 0.25 : (tensor<2x40x2x1x32xbf16>, tensor<2x40x2x32xbf16>, tensor<2x40x2x32xbf16>) -> (tensor<2x40x2x1x32xbf16>, tensor<2x2x1x40xf32>)
  pc.output gradient "q" %lse global [2, 2, 1, 40] layout <[_, _, _, _]> : tensor<2x2x1x40xf32>
  return
}
