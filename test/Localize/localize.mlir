// RUN: pc-opt %s --pc-localize --pc-verify-local | FileCheck %s
// RUN: pc-opt %s --pc-localize -o %t.local && pc-equal %s %t.local

// An evaluation step of a bag of words on dp=2, tp=2, and a third axis of size 1. It has 8 rows of 32 tokens in 2
// microbatches of 4 rows, 96 words, and width 64. tp splits the vocabulary, so a rank holds 96 / 2 = 48 rows of the
// table. dp splits the batch, so it has 4 / 2 = 2 rows of each microbatch.
pc.mesh <dp = 2, tp = 2, one = 1>

// CHECK-LABEL: func.func @step
func.func @step() {
  // One block_offset is for positions, in blocks of 16. Another, in blocks of 48, serves all three ops that depend on
  // the global index of a word.
  // CHECK-NEXT: %[[POSITION:.*]] = pc.block_offset on ["tp"] block 16 : tensor<i32>
  // CHECK-NEXT: %[[OFFSET:.*]] = pc.block_offset on ["tp"] block 48 : tensor<i32>
  // Leaves record the whole value of which they hold a part.
  // CHECK-NEXT: %[[W:.*]] = pc.parameter "w" {{.*}} valid [90, 64] global [96, 64] layout <[tp, _]> : tensor<48x64xf32>
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [90, 64], start = [0, 0], size = [90, 64]> valid [90, 64] : tensor<96x64xf32, #pc.place<[tp, _]>>
  // CHECK-NEXT: pc.state "exp_avg" of "w" {{.*}} global [96, 64] layout <[tp, _]> : tensor<48x64xf32>
  %m = pc.state "exp_avg" of "w" dims ["vocab", "embed"] : tensor<96x64xf32, #pc.place<[tp, _]>>
  // CHECK-NEXT: %[[TOKENS:.*]] = pc.input tokens {{.*}} global [2, 4, 32] layout <[_, dp, _]> : tensor<2x2x32xi32>
  %tokens = pc.input tokens dims ["microbatch", "batch", "sequence"] : tensor<2x4x32xi32, #pc.place<[_, dp, _]>>
  // CHECK-NEXT: %[[COS:.*]] = pc.rope_table cos {{.*}} global [32, 2] layout <[tp, _]> : tensor<16x2xf32>
  %cos = pc.rope_table cos inv_freq [1.0, 0.1] scale 1.0 : tensor<32x2xf32, #pc.place<[tp, _]>>
  // CHECK-NEXT: pc.iota offset %[[POSITION]] : tensor<i32> -> tensor<16xi32>
  %i = pc.iota -> tensor<32xi32, #pc.place<[tp]>>
  // An iota that is not split needs no offset.
  // CHECK-NEXT: pc.iota -> tensor<32xi32>
  %j = pc.iota -> tensor<32xi32, #pc.place<[_]>>
  // CHECK-NEXT: pc.accumulate (%[[T:.*]] = %[[TOKENS]] : tensor<2x2x32xi32> -> tensor<2x32xi32>) {
  %loss = pc.accumulate (%t = %tokens : tensor<2x4x32xi32, #pc.place<[_, dp, _]>> -> tensor<4x32xi32, #pc.place<[dp, _]>>) {
    // CHECK-NEXT: %[[P:.*]] = pc.embedding %[[W]], %[[T]] offset %[[OFFSET]] : (tensor<48x64xf32>, tensor<2x32xi32>, tensor<i32>) -> tensor<2x32x64xf32>
    %p = pc.embedding %w, %t : (tensor<96x64xf32, #pc.place<[tp, _]>>, tensor<4x32xi32, #pc.place<[dp, _]>>) -> tensor<4x32x64xf32, #pc.place<[dp, _, _] sum(tp)>>
    // CHECK-NEXT: %[[X:.*]] = pc.all_reduce sum %[[P]] on ["tp"] : (tensor<2x32x64xf32>) -> tensor<2x32x64xf32>
    %x = pc.all_reduce sum %p on ["tp"] : (tensor<4x32x64xf32, #pc.place<[dp, _, _] sum(tp)>>) -> tensor<4x32x64xf32, #pc.place<[dp, _, _]>>
    // A move over an axis of one rank is removed.
    // CHECK-NOT: "one"
    %x1 = pc.slice %x dim 1 on ["one"] : (tensor<4x32x64xf32, #pc.place<[dp, _, _]>>) -> tensor<4x32x64xf32, #pc.place<[dp, one, _]>>
    %x2 = pc.all_gather %x1 dim 1 on ["one"] : (tensor<4x32x64xf32, #pc.place<[dp, one, _]>>) -> tensor<4x32x64xf32, #pc.place<[dp, _, _]>>
    // CHECK-NEXT: %[[L:.*]] = pc.einsum "b s e, v e -> b s v" %[[X]], %[[W]] : (tensor<2x32x64xf32>, tensor<48x64xf32>) -> tensor<2x32x48xf32>
    %l = pc.einsum "b s e, v e -> b s v" %x2, %w : (tensor<4x32x64xf32, #pc.place<[dp, _, _]>>, tensor<96x64xf32, #pc.place<[tp, _]>>) -> tensor<4x32x96xf32, #pc.place<[dp, _, tp]>>
    // The count of valid words stays global.
    // CHECK-NEXT: pc.mask_padding %[[L]] valid 90 value -1.000000e+30 offset %[[OFFSET]]
    %l2 = pc.mask_padding %l valid 90 value -1.0e+30 : (tensor<4x32x96xf32, #pc.place<[dp, _, tp]>>) -> tensor<4x32x96xf32, #pc.place<[dp, _, tp]>>
    // CHECK-NEXT: pc.pick {{.*}} offset %[[OFFSET]]
    %n = pc.pick %l2, %t : (tensor<4x32x96xf32, #pc.place<[dp, _, tp]>>, tensor<4x32xi32, #pc.place<[dp, _]>>) -> tensor<4x32xf32, #pc.place<[dp, _] sum(tp)>>
    // CHECK-NEXT: pc.output logits "logits" {{.*}} valid [4, 32, 90] global [4, 32, 96] layout <[dp, _, tp]> : tensor<2x32x48xf32>
    pc.output logits "logits" %l2 valid [4, 32, 90] : tensor<4x32x96xf32, #pc.place<[dp, _, tp]>>
    %s = pc.einsum "b s ->" %n : (tensor<4x32xf32, #pc.place<[dp, _] sum(tp)>>) -> tensor<f32, #pc.place<[] sum(dp, tp)>>
    // CHECK: pc.all_reduce sum {{.*}} on ["dp", "tp"] : (tensor<f32>) -> tensor<f32>
    %loss0 = pc.all_reduce sum %s on ["dp", "tp"] : (tensor<f32, #pc.place<[] sum(dp, tp)>>) -> tensor<f32, #pc.place<[]>>
    pc.yield %loss0 : tensor<f32, #pc.place<[]>>
  } : tensor<f32, #pc.place<[]>>
  // CHECK: pc.output loss "loss" %{{.*}} global [] layout <[]> : tensor<f32>
  pc.output loss "loss" %loss : tensor<f32, #pc.place<[]>>
  // CHECK: pc.update "exp_avg" of "w" %{{.*}} : tensor<48x64xf32>
  pc.update "exp_avg" of "w" %m : tensor<96x64xf32, #pc.place<[tp, _]>>
  return
}
