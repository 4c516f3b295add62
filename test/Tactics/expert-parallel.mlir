// Experts are split, and everywhere else the batch is split. Tokens are gathered before the experts, and results are
// reduced and scattered after them. The router is whole.
// RUN: pc-opt %s --pc-set-mesh=mesh=ep=2 --pc-expert-parallel --pc-fuse-moves --pc-verify-placed | FileCheck %s
// CHECK: pc.parameter "router" {{.*}} : tensor<4x8xf32, #pc.place<[_, _]>>
// CHECK: pc.parameter "up" {{.*}} : tensor<4x6x8xf32, #pc.place<[ep, _, _]>>
// CHECK: pc.parameter "down" {{.*}} : tensor<8x4x6xf32, #pc.place<[_, ep, _]>>
// CHECK: pc.input tokens {{.*}} : tensor<4x8xi32, #pc.place<[ep, _]>>
// CHECK: pc.all_gather {{.*}} -> tensor<4x8x8xf32, #pc.place<[_, _, _]>>
// CHECK: pc.einsum "b s n f, e n f, b s n -> b s e" {{.*}} -> tensor<4x8x8xf32, #pc.place<[_, _, _] sum(ep)>>
// CHECK: pc.reduce_scatter {{.*}} -> tensor<4x8x8xf32, #pc.place<[ep, _, _]>>
// RUN: pc-opt %s --pc-differentiate -o %t.step && pc-opt %t.step --pc-set-mesh=mesh=dp=2,ep=2 --pc-expert-parallel --pc-data-parallel --pc-fuse-moves --pc-verify-placed -o %t.placed
// RUN: pc-equal %t.step %t.placed && pc-opt %t.placed --pc-erase-placements | diff %t.step -
// RUN: not pc-opt %s --pc-set-mesh=mesh=ep=3 --pc-expert-parallel 2>&1 | FileCheck %s --check-prefix=UNEVEN
// UNEVEN: error: pc-expert-parallel: 'up': 4 experts cannot be split over ep=3
// RUN: sed 's/"experts", "expert_ffn"/"a", "b"/' %s | not pc-opt --pc-set-mesh=mesh=ep=2 --pc-expert-parallel 2>&1 | FileCheck %s --check-prefix=NONE
// NONE: error: pc-expert-parallel: the model is not a mixture of experts
// Outside of experts, the axis splits something else: the sequence; weights, with or without the sequence; or the batch
// and all other parameters.
// RUN: pc-opt %t.step --pc-set-mesh=mesh=cp=2 --pc-context-parallel=experts=true --pc-fuse-moves --pc-verify-placed -o %t.cp && FileCheck %s --check-prefix=CP --input-file %t.cp
// RUN: pc-equal %t.step %t.cp && pc-opt %t.cp --pc-erase-placements | diff %t.step -
// CP: pc.parameter "router" {{.*}} : tensor<4x8xf32, #pc.place<[_, _]>>
// CP: pc.parameter "up" {{.*}} : tensor<4x6x8xf32, #pc.place<[cp, _, _]>>
// CP: pc.input tokens {{.*}}, cp]>>
// CP: pc.all_gather {{.*}} -> tensor<4x8x8xf32, #pc.place<[_, _, _]>>
// CP: pc.reduce_scatter {{.*}} -> tensor<4x8x8xf32, #pc.place<[_, cp, _]>>
// RUN: pc-opt %t.step --pc-set-mesh=mesh=tp=2 --pc-tensor-parallel=experts=true --pc-fuse-moves --pc-verify-placed -o %t.tp && FileCheck %s --check-prefix=TP --input-file %t.tp
// RUN: pc-equal %t.step %t.tp && pc-opt %t.tp --pc-erase-placements | diff %t.step -
// TP: pc.parameter "w" {{.*}} : tensor<16x8xf32, #pc.place<[tp, _]>>
// TP: pc.parameter "router" {{.*}} : tensor<4x8xf32, #pc.place<[_, _]>>
// TP: pc.parameter "up" {{.*}} : tensor<4x6x8xf32, #pc.place<[tp, _, _]>>
// TP: pc.einsum "b s n f, e n f, b s n -> b s e" {{.*}} -> tensor<4x8x8xf32, #pc.place<[_, _, _] sum(tp)>>
// TP: pc.all_reduce {{.*}} -> tensor<4x8x8xf32, #pc.place<[_, _, _]>>
// RUN: pc-opt %t.step --pc-set-mesh=mesh=tp=2 --pc-tensor-parallel=experts=true --pc-sequence-parallel --pc-fuse-moves --pc-verify-placed -o %t.sp && FileCheck %s --check-prefix=SP --input-file %t.sp
// RUN: pc-equal %t.step %t.sp && pc-opt %t.sp --pc-erase-placements | diff %t.step -
// SP: pc.parameter "up" {{.*}} : tensor<4x6x8xf32, #pc.place<[tp, _, _]>>
// SP: pc.reduce_scatter {{.*}} -> tensor<4x8x8xf32, #pc.place<[_, tp, _]>>
// RUN: %each 1 2 3 : 'pc-opt %t.step --pc-set-mesh=mesh=dp=2 "--pc-zero=stage={} experts=true" --pc-fuse-moves --pc-verify-placed -o %t.zero && pc-equal %t.step %t.zero && pc-opt %t.zero --pc-erase-placements | diff %t.step -'
// RUN: FileCheck %s --check-prefix=ZERO --input-file %t.zero && not grep "pc.all_gather.*tensor<4x6x8xf32" %t.zero
// ZERO: pc.parameter "w" {{.*}} : tensor<16x8xf32, #pc.place<[dp, _]>>
// ZERO: pc.parameter "up" {{.*}} : tensor<4x6x8xf32, #pc.place<[dp, _, _]>>
// RUN: not pc-opt %s --pc-set-mesh=mesh=cp=8 --pc-context-parallel=experts=true 2>&1 | FileCheck %s --check-prefix=ON-CP
// ON-CP: error: pc-context-parallel: 'up': 4 experts cannot be split over cp=8
// RUN: not pc-opt %s --pc-set-mesh=mesh=row=2,col=2 "--pc-tensor-parallel=axis=row,col form=2d experts=true" 2>&1 | FileCheck %s --check-prefix=GRID
// GRID: error: pc-tensor-parallel: form '2d' splits every expert like other weights; distributing whole experts needs form 1d
// In bf16 the router's product is f32.
// RUN: pc-opt %t.step --pc-mixed-precision | FileCheck %s --check-prefix=BF16
// BF16: %[[WIDE:.*]] = pc.cast {{.*}} : (tensor<4x8x8xbf16>) -> tensor<4x8x8xf32>
// BF16-NEXT: pc.einsum "b s e, n e -> b s n" %[[WIDE]], {{.*}} : (tensor<4x8x8xf32>, tensor<4x8xf32>) -> tensor<4x8x4xf32>

pc.program "toy" batch 4 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 1.0> source <"w", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %router = pc.parameter "router" dims ["experts", "embed"] init <normal, 1.0> source <"router", shape = [4, 8], start = [0, 0], size = [4, 8]> : tensor<4x8xf32>
  %up = pc.parameter "up" dims ["experts", "expert_ffn", "embed"] init <normal, 1.0> source <"up", shape = [4, 6, 8], start = [0, 0, 0], size = [4, 6, 8]> : tensor<4x6x8xf32>
  %down = pc.parameter "down" dims ["embed", "experts", "expert_ffn"] init <normal, 1.0> source <"down", shape = [8, 4, 6], start = [0, 0, 0], size = [8, 4, 6]> : tensor<8x4x6xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32>
  %targets = pc.input targets dims ["batch", "sequence"] : tensor<4x8xi32>
  %x = pc.embedding %w, %tokens : (tensor<16x8xf32>, tensor<4x8xi32>) -> tensor<4x8x8xf32>
  %logits = pc.einsum "b s e, n e -> b s n" %x, %router : (tensor<4x8x8xf32>, tensor<4x8xf32>) -> tensor<4x8x4xf32>
  %scores = pc.softmax %logits : (tensor<4x8x4xf32>) -> tensor<4x8x4xf32>
  %chosen = pc.top_k %logits k 2 : (tensor<4x8x4xf32>) -> tensor<4x8x4xf32>
  %weights = pc.einsum "b s n, b s n -> b s n" %scores, %chosen : (tensor<4x8x4xf32>, tensor<4x8x4xf32>) -> tensor<4x8x4xf32>
  %h = pc.einsum "b s e, n f e, b s n -> b s n f" %x, %up, %chosen routed 2 : (tensor<4x8x8xf32>, tensor<4x6x8xf32>, tensor<4x8x4xf32>) -> tensor<4x8x4x6xf32>
  %a = pc.activation silu %h : (tensor<4x8x4x6xf32>) -> tensor<4x8x4x6xf32>
  %g = pc.einsum "b s n f, b s n f, b s n, b s n -> b s n f" %a, %h, %weights, %chosen routed 2 : (tensor<4x8x4x6xf32>, tensor<4x8x4x6xf32>, tensor<4x8x4xf32>, tensor<4x8x4xf32>) -> tensor<4x8x4x6xf32>
  %y = pc.einsum "b s n f, e n f, b s n -> b s e" %g, %down, %chosen routed 2 : (tensor<4x8x4x6xf32>, tensor<8x4x6xf32>, tensor<4x8x4xf32>) -> tensor<4x8x8xf32>
  %z = pc.add %x, %y : (tensor<4x8x8xf32>, tensor<4x8x8xf32>) -> tensor<4x8x8xf32>
  %out = pc.einsum "b s e, v e -> b s v" %z, %w : (tensor<4x8x8xf32>, tensor<16x8xf32>) -> tensor<4x8x16xf32>
  pc.output logits "logits" %out : tensor<4x8x16xf32>
  %nll = pc.cross_entropy %out, %targets : (tensor<4x8x16xf32>, tensor<4x8xi32>) -> tensor<4x8xf32>
  %lw = pc.input loss_weights dims ["batch", "sequence"] : tensor<4x8xf32>
  %loss = pc.einsum "b s, b s ->" %nll, %lw : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
