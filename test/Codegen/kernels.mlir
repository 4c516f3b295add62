// RUN: pc-opt %s --pc-plan-memory --pc-generate-kernels | FileCheck %s
// RUN: pc-opt %s --pc-plan-memory --pc-generate-kernels=lanes=8 | FileCheck %s --check-prefix=AVX2

// Tests the form of special kernels. kernels/kernels-test.cpp tests what they compute.

pc.mesh <dp = 1>
pc.program "m" batch 2 sequence 40 vocabulary 100 config "{}"

func.func @step() {
  %q = pc.parameter "q" dims ["b", "s", "k", "g", "d"] init <fill, 1.0> source <"q", shape = [2, 40, 2, 1, 32], start = [0, 0, 0, 0, 0], size = [2, 40, 2, 1, 32]> global [2, 40, 2, 1, 32] layout <[_, _, _, _, _]> : tensor<2x40x2x1x32xf32>
  %k = pc.parameter "k" dims ["b", "t", "k", "d"] init <fill, 1.0> source <"k", shape = [2, 40, 2, 32], start = [0, 0, 0, 0], size = [2, 40, 2, 32]> global [2, 40, 2, 32] layout <[_, _, _, _]> : tensor<2x40x2x32xf32>

  // The two products, for scores and output, have 8 x 2 full vectors (4 x 2 for AVX2). Exponentials are polynomials.
  // CHECK-LABEL: llvm.func internal @pc_attention_0
  // CHECK-COUNT-16: vector.fma {{.*}} : vector<16xf32>
  // CHECK: scf.yield
  // CHECK-NOT: math.exp
  // CHECK: arith.shli
  // CHECK-COUNT-16: vector.fma {{.*}} : vector<16xf32>
  // CHECK: math.log {{.*}} : vector<16xf32>
  // CHECK: llvm.return
  // AVX2-LABEL: llvm.func internal @pc_attention_0
  // AVX2-COUNT-8: vector.fma {{.*}} : vector<8xf32>
  // AVX2: scf.yield
  %o, %lse = pc.attention causal %q, %k, %k scale 0.25 : (tensor<2x40x2x1x32xf32>, tensor<2x40x2x32xf32>, tensor<2x40x2x32xf32>) -> (tensor<2x40x2x1x32xf32>, tensor<2x2x1x40xf32>)
  pc.output gradient "q" %o global [2, 40, 2, 1, 32] layout <[_, _, _, _, _]> : tensor<2x40x2x1x32xf32>
  return
}
