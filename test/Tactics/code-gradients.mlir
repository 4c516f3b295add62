// Which sums are sent as codes, and how many ranks decide the move. Erasing the placements gives the step program, and the proof passes.
// RUN: pc-opt %s --pc-differentiate --pc-sign-step -o %t.step
// RUN: pc-opt %t.step --pc-set-mesh=mesh=dp=2 --pc-data-parallel --pc-code-gradients --pc-fuse-moves --pc-verify-placed --pc-prove=reference=%t.step -o %t.two
// RUN: FileCheck %s --check-prefix=TWO < %t.two
// RUN: pc-opt %t.two --pc-erase-placements -o %t.erased
// RUN: pc-opt %t.step -o %t.plain
// RUN: diff %t.plain %t.erased
// The table, the vector and the small matrix stay f32; so does the matrix whose columns blocks do not divide.
// TWO-DAG: pc.all_reduce sum {{.*}} on ["dp"] : (tensor<96x64xf32,
// TWO-DAG: pc.all_reduce sum {{.*}} on ["dp"] : (tensor<64xf32,
// TWO-DAG: pc.all_reduce sum {{.*}} on ["dp"] : (tensor<64x24xf32,
// TWO-DAG: pc.all_reduce sum {{.*}} on ["dp"] : (tensor<24x200xf32,
// TWO-DAG: pc.all_reduce sum {{.*}} on ["dp"] wire <int8, [16, 16]> : (tensor<64x96xf32, #pc.place<[_, _] sum(dp)>>) -> tensor<64x96xf32, #pc.place<[_, _]>>
// A row of 256 elements is a block if the other dim is short.
// TWO-DAG: pc.all_reduce sum {{.*}} on ["dp"] wire <int8, [1, 256]> : (tensor<20x256xf32,

// Between six ranks, codes of one block, and a gather of f32, are fewer bytes. The dim of 20 does not divide, and the dim of 256 has one block.
// RUN: pc-opt %t.step --pc-set-mesh=mesh=dp=6 --pc-data-parallel --pc-code-gradients --pc-verify-placed --pc-prove=reference=%t.step | FileCheck %s --check-prefix=SIX
// SIX-DAG: %[[B:.*]] = pc.reduce_scatter sum {{.*}} dim 1 on ["dp"] wire <int8, [16, 16]> : (tensor<64x96xf32, #pc.place<[_, _] sum(dp)>>) -> tensor<64x96xf32, #pc.place<[_, dp]>>
// SIX-DAG: pc.all_gather %[[B]] dim 1 on ["dp"]
// SIX-DAG: pc.all_reduce sum {{.*}} on ["dp"] wire <int8, [1, 256]> : (tensor<20x256xf32,
// 12 ranks: codes of all ranks would be more bytes than f32.
// RUN: pc-opt %t.step --pc-set-mesh=mesh=dp=12 --pc-data-parallel --pc-code-gradients | FileCheck %s --check-prefix=TWELVE
// TWELVE-NOT: wire
// RUN: pc-opt %t.step --pc-set-mesh=mesh=dp=12 --pc-data-parallel --pc-code-gradients=bits=4 | FileCheck %s --check-prefix=FOUR
// FOUR: wire <int4,

// ZeRO-2 with two microbatches adds in the body. A chain over two axes becomes one move; moves with and without codes do not.
// RUN: pc-opt %s --pc-differentiate=microbatches=2 --pc-set-mesh=mesh=dp=2 --pc-zero=stage=2 --pc-code-gradients | FileCheck %s --check-prefix=BODY
// BODY: pc.accumulate
// BODY: pc.reduce_scatter sum {{.*}} wire <int8, [16, 16]>
// BODY: pc.yield
// RUN: pc-opt %t.step --pc-set-mesh=mesh=a=2,b=2 --pc-data-parallel=axis=a --pc-data-parallel=axis=b --pc-code-gradients --pc-fuse-moves | FileCheck %s --check-prefix=CHAIN
// CHAIN: pc.all_reduce sum {{.*}} on ["a", "b"] wire <int8, [16, 16]> : (tensor<64x96xf32

// RUN: not pc-opt %t.two --pc-verify-placed=lossless 2>&1 | FileCheck %s --check-prefix=LOSSLESS
// LOSSLESS: error: '{{.*}}' is added in codes of 8 bits, which round it (V7)
// RUN: not pc-opt %s --pc-code-gradients 2>&1 | FileCheck %s --check-prefix=UNPLACED
// UNPLACED: error: pc-code-gradients: needs a placed program; run pc-set-mesh and a tactic first
// RUN: not pc-opt %t.step --pc-set-mesh=mesh=dp=2 --pc-data-parallel --pc-code-gradients=bits=2 2>&1 | FileCheck %s --check-prefix=BITS
// BITS: error: pc-code-gradients: bits must be 8 or 4, got 2
func.func @model() {
  %ids = pc.input tokens dims ["batch"] : tensor<24xi32>
  %t = pc.parameter "t" dims ["vocab", "embed"] init <fill, 1.0> source <"t", shape = [96, 64], start = [0, 0], size = [96, 64]> : tensor<96x64xf32>
  %b = pc.parameter "b" dims ["embed"] init <fill, 1.0> source <"b", shape = [64], start = [0], size = [64]> : tensor<64xf32>
  %w = pc.parameter "w" dims ["embed", "out"] init <fill, 1.0> source <"w", shape = [64, 96], start = [0, 0], size = [64, 96]> : tensor<64x96xf32>
  %s = pc.parameter "s" dims ["embed", "small"] init <fill, 1.0> source <"s", shape = [64, 24], start = [0, 0], size = [64, 24]> : tensor<64x24xf32>
  %o = pc.parameter "o" dims ["small", "odd"] init <fill, 1.0> source <"o", shape = [24, 200], start = [0, 0], size = [24, 200]> : tensor<24x200xf32>
  %r = pc.parameter "r" dims ["twenty", "row"] init <fill, 1.0> source <"r", shape = [20, 256], start = [0, 0], size = [20, 256]> : tensor<20x256xf32>
  %e = pc.embedding %t, %ids : (tensor<96x64xf32>, tensor<24xi32>) -> tensor<24x64xf32>
  %x = pc.einsum "n e, e -> n e" %e, %b : (tensor<24x64xf32>, tensor<64xf32>) -> tensor<24x64xf32>
  %y = pc.einsum "n e, e o -> n o" %x, %w : (tensor<24x64xf32>, tensor<64x96xf32>) -> tensor<24x96xf32>
  %z = pc.einsum "n e, e s -> n s" %x, %s : (tensor<24x64xf32>, tensor<64x24xf32>) -> tensor<24x24xf32>
  %v = pc.einsum "n s, s d -> n d" %z, %o : (tensor<24x24xf32>, tensor<24x200xf32>) -> tensor<24x200xf32>
  %u = pc.einsum "n o, t r -> n" %y, %r : (tensor<24x96xf32>, tensor<20x256xf32>) -> tensor<24xf32>
  %l = pc.einsum "n d, n ->" %v, %u : (tensor<24x200xf32>, tensor<24xf32>) -> tensor<f32>
  pc.output loss "loss" %l : tensor<f32>
  return
}
