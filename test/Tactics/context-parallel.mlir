// The form `heads` splits the sequence, except in attention, where it splits the heads.
// RUN: pc-opt %s --pc-set-mesh=mesh=cp=2 --pc-context-parallel --pc-verify-placed | FileCheck %s
// CHECK: pc.input tokens {{.*}} : tensor<2x8xi32, #pc.place<[_, cp]>>
// CHECK: %[[Q:.*]] = pc.all_to_all {{.*}} from 1 to 2 on ["cp"] {{.*}} -> tensor<2x8x2x2x4xf32, #pc.place<[_, _, cp, _, _]>>
// CHECK-NEXT: %[[K:.*]] = pc.all_to_all {{.*}} from 1 to 2 on ["cp"]
// CHECK-NEXT: pc.attention causal %[[Q]], %[[K]], %[[K]]

// In the form `ring`, queries stay on their rank, and keys and values circulate (here, they are gathered). The sequence
// is in zigzag order, so that all ranks have equal work.
// RUN: pc-opt %s --pc-zigzag=ranks=2 --pc-set-mesh=mesh=cp=2 --pc-context-parallel=form=ring --pc-verify-placed | FileCheck %s --check-prefix=RING
// RING: pc.program {{.*}} zigzag 2
// RING: %[[Q:.*]] = pc.einsum "b s e, e k g d -> b s k g d" {{.*}} -> tensor<2x8x2x2x4xf32, #pc.place<[_, cp, _, _, _]>>
// RING: %[[K:.*]] = pc.all_gather {{.*}} dim 1 on ["cp"]
// RING-NEXT: pc.attention causal %[[Q]], %[[K]], %[[K]]

pc.program "attention" batch 2 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %table = pc.parameter "table" dims ["vocab", "embed"] init <fill, 1.0> source <"table", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %wq = pc.parameter "wq" dims ["embed", "kv_heads", "group", "head_dim"] init <fill, 1.0> source <"wq", shape = [8, 16], start = [0, 0], size = [8, 16]> : tensor<8x2x2x4xf32>
  %wk = pc.parameter "wk" dims ["embed", "kv_heads", "head_dim"] init <fill, 1.0> source <"wk", shape = [8, 8], start = [0, 0], size = [8, 8]> : tensor<8x2x4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x8xi32>
  %x = pc.embedding %table, %tokens : (tensor<16x8xf32>, tensor<2x8xi32>) -> tensor<2x8x8xf32>
  %q = pc.einsum "b s e, e k g d -> b s k g d" %x, %wq : (tensor<2x8x8xf32>, tensor<8x2x2x4xf32>) -> tensor<2x8x2x2x4xf32>
  %k = pc.einsum "b s e, e k d -> b s k d" %x, %wk : (tensor<2x8x8xf32>, tensor<8x2x4xf32>) -> tensor<2x8x2x4xf32>
  %o, %lse = pc.attention causal %q, %k, %k scale 0.5 : (tensor<2x8x2x2x4xf32>, tensor<2x8x2x4xf32>, tensor<2x8x2x4xf32>) -> (tensor<2x8x2x2x4xf32>, tensor<2x2x2x8xf32>)
  pc.output logits "o" %o : tensor<2x8x2x2x4xf32>
  return
}
