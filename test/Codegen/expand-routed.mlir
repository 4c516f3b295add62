// A mixture of experts computes and stores only what tokens have chosen. Where all experts must compute, the mask
// multiplies the results.
// RUN: pc-opt %s --pc-differentiate -o %t.step && pc-opt %t.step --pc-set-mesh=mesh=ep=2 --pc-expert-parallel --pc-fuse-moves --pc-localize -o %t.local
// RUN: pc-opt %t.local --pc-store-rows -o %t.rows && FileCheck %s --input-file %t.rows && pc-equal %t.step %t.rows
// Each rank has 32 tokens, and each token may have chosen both experts of the rank. The share of a token is read by
// rows, and its gradient is computed from rows.
// CHECK: %[[H:.*]] = pc.einsum "b s e, n f e, b s n -> b s n f" {{.*}} routed 2 : {{.*}} -> tensor<4x8x2x6xf32, #pc.rows<64 of 3>>
// CHECK: pc.activation silu %[[H]] : (tensor<4x8x2x6xf32, #pc.rows<64 of 3>>) -> tensor<4x8x2x6xf32, #pc.rows<64 of 3>>
// CHECK: pc.einsum "b s n, b s n -> b s n" {{.*}} -> tensor<4x8x2xf32, #pc.rows<64 of 3>>
// CHECK: %[[G:.*]] = pc.einsum "b s n f, b s n f, b s n -> b s n f" {{.*}} -> tensor<4x8x2x6xf32, #pc.rows<64 of 3>>
// CHECK: pc.einsum "b s n f, e n f, b s n -> b s e" %[[G]], {{.*}} -> tensor<4x8x8xf32>
// CHECK: pc.einsum "{{.*}} -> e n f" {{.*}} routed 2 : {{.*}} -> tensor<8x2x6xf32>
// CHECK: pc.einsum {{.*}} routed 2 : (tensor<4x8x2xf32, #pc.rows<64 of 3>>, tensor<4x8x2xf32>) -> tensor<4x8x2xf32>
// CHECK: pc.einsum "{{.*}} -> n f e" {{.*}} routed 2 : {{.*}} -> tensor<2x6x8xf32>
// Each row of an expert gets the expert's bias, and the bias gradient is a sum over rows.
// RUN: pc-import %S/../EndToEnd/golden/gpt_oss -o %t.oss --batch 4 --seq 16 && pc-compile %t.oss --mesh ep=2 --to=step -o %t.oss-step && pc-compile %t.oss --mesh ep=2 --to=local | pc-opt --pc-store-rows -o %t.lines
// RUN: FileCheck %s --check-prefix=LINES --input-file %t.lines && pc-equal %t.oss-step %t.lines
// LINES: pc.einsum "n f, b s n -> b s n f" {{.*}} routed 2 : (tensor<2x24xf32>, tensor<4x16x2xf32>) -> tensor<4x16x2x24xf32, #pc.rows<128 of 3>>
// LINES: pc.clamp {{.*}} -> tensor<4x16x2x24xf32, #pc.rows<128 of 3>>
// LINES: pc.einsum "b s n f, b s n -> n f" {{.*}} routed 2 : (tensor<4x16x2x24xf32, #pc.rows<128 of 3>>, tensor<4x16x2xf32>) -> tensor<2x24xf32>
// Kernels work on rows.
// RUN: pc-opt %t.rows --pc-fuse --pc-plan-memory -o %t.planned && FileCheck %s --check-prefix=PLANNED --input-file %t.planned && pc-equal %t.step %t.planned
// PLANNED: tensor<4x8x2x6xf32, #pc.home<{{[0-9]+}}, <64 of 3>>>
// The same holds in bf16.
// RUN: pc-opt %t.step --pc-mixed-precision -o %t.half && pc-opt %t.half --pc-set-mesh=mesh=ep=2 --pc-expert-parallel --pc-fuse-moves --pc-localize -o %t.half.local
// RUN: pc-opt %t.half.local --pc-store-rows=target=cuda -o %t.half.rows && FileCheck %s --check-prefix=HALF --input-file %t.half.rows && pc-equal %t.half %t.half.rows
// RUN: pc-opt %t.half.local --pc-store-rows -o %t.half.cpu && FileCheck %s --check-prefix=HALF --input-file %t.half.cpu && pc-equal %t.half %t.half.cpu
// HALF: %[[H:.*]] = pc.einsum "b s e, n f e, b s n -> b s n f" {{.*}} -> tensor<4x8x2x6xbf16, #pc.rows<64 of 3>>
// HALF: %[[G:.*]] = pc.cast {{.*}} -> tensor<4x8x2x6xbf16, #pc.rows<64 of 3>>
// HALF-NEXT: pc.einsum "b s n f, e n f, b s n -> b s e" %[[G]], {{.*}} -> tensor<4x8x8xbf16>
// If all terms are computed, an einsum becomes a product of two operands. The mask multiplies the operand that has its
// size, or else the result; if the result has no experts, it multiplies an operand.
// RUN: pc-opt %t.local --pc-expand-routed -o %t.all && FileCheck %s --check-prefix=ALL --input-file %t.all && pc-equal %t.step %t.all
// ALL: %[[ALL:.*]] = pc.einsum "b s e, n f e -> b s n f" {{.*}} : (tensor<4x8x8xf32>, tensor<2x6x8xf32>)
// ALL-NEXT: pc.einsum "b s n f, b s n -> b s n f" %[[ALL]], %[[MASK:.*]] routed 2 :
// ALL: %[[SHARE:.*]] = pc.einsum "b s n, b s n -> b s n" {{.*}}, %[[MASK]] routed 2 :
// ALL-NEXT: pc.einsum "b s n f, b s n f, b s n -> b s n f" {{.*}}, %[[SHARE]] :
// ALL: %[[MASKED:.*]] = pc.einsum "b s n f, b s n -> b s n f" {{.*}}, %[[MASK]] routed 2 :
// ALL-NEXT: pc.einsum "b s n f, e n f -> b s e" %[[MASKED]], {{.*}} : (tensor<4x8x2x6xf32>, tensor<8x2x6xf32>)
// Values that are stored by rows do not change.
// RUN: pc-opt %t.rows --pc-expand-routed | diff %t.rows -

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
