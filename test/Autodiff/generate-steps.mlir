// The step of a model that generates has caches around attention, a lookup of the rows of positions, and the choice of
// tokens in chosen rows. Options that the model does not allow are refused.
// RUN: pc-opt %s --split-input-file --verify-diagnostics --pc-generate-steps="slots=2 size=4 context=8 groups=3" | FileCheck %s
// RUN: pc-opt %s --split-input-file --verify-diagnostics --pc-generate-steps="slots=2 size=4 context=8 sampling=false" -o %t.greedy
// RUN: FileCheck %s --check-prefix=GREEDY < %t.greedy
// RUN: sed '/^\/\/ -----/,$d' %s > %t.one
// RUN: pc-opt %t.one --pc-generate-steps="slots=2 size=2 chunk=6 sampling=false" --pc-verify-step | FileCheck %s --check-prefix=CHUNK
// RUN: not pc-opt %t.one --pc-generate-steps="slots=5 size=4" 2>&1 | FileCheck %s --check-prefix=MANY
// RUN: not pc-opt %t.one --pc-generate-steps="slots=2 size=4 context=9" 2>&1 | FileCheck %s --check-prefix=CONTEXT
// RUN: pc-opt %t.one --pc-generate-steps="slots=6 size=6 chunk=9 context=4 microbatches=2" --pc-verify-step | FileCheck %s --check-prefix=SHORT
// RUN: not pc-opt %t.one --pc-generate-steps="slots=5 size=5 microbatches=2" 2>&1 | FileCheck %s --check-prefix=PARTS
// RUN: pc-opt %t.one --pc-generate-steps="slots=2 size=4 context=8" --pc-verify-step --verify-roundtrip -o %t.step
// RUN: pc-opt %t.step --pc-interpret -o /dev/null | FileCheck %s --check-prefix=STEP

// MANY: error: pc-generate-steps: a step of 4 tokens is too small for 5 slots: every slot needs one
// CONTEXT: error: pc-generate-steps: a context of 9 tokens is longer than the model's sequence of 8; import the model with --seq=9
// PARTS: error: pc-generate-steps: 5 slots are not a multiple of 2 microbatches
// STEP: update keys of attention 0
// STEP: generated token
// STEP: generated logprob

// CHECK: pc.program "gpt2" batch 3 sequence 8
// CHECK-LABEL: func.func @step
// CHECK-DAG: %[[KEYS:.*]] = pc.state cache "keys" of "attention 0" dims ["batch", "slot", "kv_heads", "cached", "head_dim"] : tensor<3x2x2x8x2xf32>
// CHECK-DAG: %[[TOKENS:.*]] = pc.input data "tokens" below 16 dims ["batch", "sequence"] : tensor<3x4xi32>
// CHECK-DAG: %[[SLOTS:.*]] = pc.input data "slots" below 3 dims ["batch", "sequence"] : tensor<3x4xi32>
// CHECK-DAG: %[[POSITIONS:.*]] = pc.input data "positions" below 8 dims ["batch", "sequence"] : tensor<3x4xi32>
// CHECK-DAG: %[[CHOSEN:.*]] = pc.input data "chosen" below 4 dims ["batch", "chosen"] : tensor<3x2xi32>
// CHECK-DAG: pc.input data "sampling" dims ["batch", "chosen", "setting"] : tensor<3x2x4xf32>
// CHECK-NOT: pc.input targets
// Each token has the learned position of its own index.
// CHECK: %[[ROWS:.*]] = pc.embedding %{{.*}}, %[[POSITIONS]] : (tensor<8x4xf32>, tensor<3x4xi32>) -> tensor<3x4x4xf32>
// CHECK: pc.einsum "b s e -> b s e" %[[ROWS]]
// CHECK: %[[WRITTEN:.*]] = pc.cache_write %{{.*}} into %[[KEYS]] at %[[SLOTS]], %[[POSITIONS]]
// CHECK: pc.update "keys" of "attention 0" %[[WRITTEN]]
// CHECK: pc.cached_attention %{{.*}}, %[[WRITTEN]], %{{.*}} at %[[SLOTS]], %[[POSITIONS]] scale
// CHECK: %[[CHOOSING:.*]] = pc.embedding %{{.*}}, %[[CHOSEN]] batch 1 : (tensor<3x4x4xf32>, tensor<3x2xi32>) -> tensor<3x2x4xf32>
// CHECK: pc.layer_norm %[[CHOOSING]]
// CHECK: pc.einsum "b s e, v e -> b s v" {{.*}} -> tensor<3x2x16xf32>
// CHECK: pc.sampling_threshold
// CHECK: pc.gumbel
// CHECK: pc.output generated "token"
// CHECK: pc.output generated "logprob"
// CHECK-NOT: pc.output loss

// Prompts have inputs of their own, and write into the caches after the other tokens.
// CHUNK: %[[CACHE:.*]] = pc.state cache "keys"
// CHUNK: pc.input data "tokens" below 16 dims ["batch", "sequence"] : tensor<1x2xi32>
// CHUNK: %[[FIRST:.*]] = pc.cache_write %{{.*}} into %[[CACHE]]
// CHUNK-NOT: pc.update
// CHUNK: pc.output generated "token"
// CHUNK-NOT: pc.parameter
// CHUNK: pc.input data "tokens.chunk" below 16 dims ["batch", "sequence"] : tensor<1x6xi32>
// CHUNK: %[[SECOND:.*]] = pc.cache_write %{{.*}} into %[[FIRST]]
// CHUNK: pc.update "keys" of "attention 0" %[[SECOND]]
// CHUNK: pc.output generated "token.chunk"

// A step may have more tokens than a sequence, and takes tokens of one microbatch.
// SHORT-DAG: pc.state cache "keys" {{.*}} tensor<1x6x2x4x2xf32>
// SHORT-DAG: pc.input data "tokens.chunk" {{.*}} tensor<1x9xi32>
// SHORT-DAG: pc.input data "chosen" below 6 dims ["batch", "chosen"] : tensor<1x3xi32>

// GREEDY-NOT: pc.input data "sampling"
// GREEDY-NOT: pc.gumbel
// GREEDY: pc.output generated "token"

pc.program "gpt2" batch 2 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x8xi32>
  %targets = pc.input targets dims ["batch", "sequence"] : tensor<2x8xi32>
  %weights = pc.input loss_weights dims ["batch", "sequence"] : tensor<2x8xf32>
  %wte = pc.parameter "wte" dims ["vocab", "embed"] init <normal, 1.0> source <"wte", shape = [16, 4], start = [0, 0], size = [16, 4]> : tensor<16x4xf32>
  %wpe = pc.parameter "wpe" dims ["position", "embed"] init <normal, 1.0> source <"wpe", shape = [8, 4], start = [0, 0], size = [8, 4]> : tensor<8x4xf32>
  %w = pc.parameter "w" dims ["kv_heads", "head_dim", "embed"] init <normal, 1.0> source <"w", shape = [4, 4], start = [0, 0], size = [4, 4]> : tensor<2x2x4xf32>
  %one = pc.parameter "one" dims ["group"] init <fill, 1.0> source <"one", shape = [1], start = [0], size = [1]> : tensor<1xf32>
  %gamma = pc.parameter "gamma" dims ["embed"] init <fill, 1.0> source <"gamma", shape = [4], start = [0], size = [4]> : tensor<4xf32>
  %e = pc.embedding %wte, %tokens : (tensor<16x4xf32>, tensor<2x8xi32>) -> tensor<2x8x4xf32>
  %index = pc.iota -> tensor<8xi32>
  %rows = pc.embedding %wpe, %index : (tensor<8x4xf32>, tensor<8xi32>) -> tensor<8x4xf32>
  %p = pc.einsum "s e -> b s e" %rows : (tensor<8x4xf32>) -> tensor<2x8x4xf32>
  %x = pc.add %e, %p : (tensor<2x8x4xf32>, tensor<2x8x4xf32>) -> tensor<2x8x4xf32>
  %k = pc.einsum "b s e, k d e -> b s k d" %x, %w : (tensor<2x8x4xf32>, tensor<2x2x4xf32>) -> tensor<2x8x2x2xf32>
  %q = pc.einsum "b s e, k d e, g -> b s k g d" %x, %w, %one : (tensor<2x8x4xf32>, tensor<2x2x4xf32>, tensor<1xf32>) -> tensor<2x8x2x1x2xf32>
  %o, %lse = pc.attention causal %q, %k, %k scale 0.5 : (tensor<2x8x2x1x2xf32>, tensor<2x8x2x2xf32>, tensor<2x8x2x2xf32>) -> (tensor<2x8x2x1x2xf32>, tensor<2x2x1x8xf32>)
  %y = pc.einsum "b s k g d, k d e -> b s e" %o, %w : (tensor<2x8x2x1x2xf32>, tensor<2x2x4xf32>) -> tensor<2x8x4xf32>
  %z = pc.add %x, %y : (tensor<2x8x4xf32>, tensor<2x8x4xf32>) -> tensor<2x8x4xf32>
  %n, %mean, %rstd = pc.layer_norm %z, %gamma, %gamma eps 1.0e-5 : (tensor<2x8x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x8x4xf32>, tensor<2x8xf32>, tensor<2x8xf32>)
  %logits = pc.einsum "b s e, v e -> b s v" %n, %wte : (tensor<2x8x4xf32>, tensor<16x4xf32>) -> tensor<2x8x16xf32>
  pc.output logits "logits" %logits : tensor<2x8x16xf32>
  %nll = pc.cross_entropy %logits, %targets : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> tensor<2x8xf32>
  %loss = pc.einsum "b s, b s ->" %nll, %weights : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

pc.program "bert" batch 2 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x8xi32>
  %t = pc.parameter "t" dims ["vocab", "kv_heads", "group", "head_dim"] init <normal, 1.0> source <"t", shape = [16, 4], start = [0, 0], size = [16, 4]> : tensor<16x2x1x2xf32>
  %q = pc.embedding %t, %tokens : (tensor<16x2x1x2xf32>, tensor<2x8xi32>) -> tensor<2x8x2x1x2xf32>
  %k = pc.einsum "b s k g d -> b s k d" %q : (tensor<2x8x2x1x2xf32>) -> tensor<2x8x2x2xf32>
  // expected-error @below {{a program that generates cannot have attention that is not causal: its tokens would see those that are not generated yet}}
  %o, %lse = pc.attention %q, %k, %k scale 0.5 : (tensor<2x8x2x1x2xf32>, tensor<2x8x2x2xf32>, tensor<2x8x2x2xf32>) -> (tensor<2x8x2x1x2xf32>, tensor<2x2x1x8xf32>)
  %logits = pc.einsum "b s k g d, v k g d -> b s v" %o, %t : (tensor<2x8x2x1x2xf32>, tensor<16x2x1x2xf32>) -> tensor<2x8x16xf32>
  pc.output logits "logits" %logits : tensor<2x8x16xf32>
  return
}

// -----

// A mean over the sequence would mix sequences of a step.
pc.program "mean" batch 2 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x8xi32>
  %t = pc.parameter "t" dims ["vocab", "kv_heads", "group", "head_dim"] init <normal, 1.0> source <"t", shape = [16, 4], start = [0, 0], size = [16, 4]> : tensor<16x2x1x2xf32>
  %q = pc.embedding %t, %tokens : (tensor<16x2x1x2xf32>, tensor<2x8xi32>) -> tensor<2x8x2x1x2xf32>
  %k = pc.einsum "b s k g d -> b s k d" %q : (tensor<2x8x2x1x2xf32>) -> tensor<2x8x2x2xf32>
  %o, %lse = pc.attention causal %q, %k, %k scale 0.5 : (tensor<2x8x2x1x2xf32>, tensor<2x8x2x2xf32>, tensor<2x8x2x2xf32>) -> (tensor<2x8x2x1x2xf32>, tensor<2x2x1x8xf32>)
  // expected-error @below {{a program that generates cannot have 'pc.einsum', which relates the tokens of a sequence to each other}}
  %sum = pc.einsum "b s k g d -> b k g d" %o : (tensor<2x8x2x1x2xf32>) -> tensor<2x2x1x2xf32>
  %more = pc.einsum "b k g d -> b s k g d" %sum : (tensor<2x2x1x2xf32>) -> tensor<2x8x2x1x2xf32>
  %both = pc.add %o, %more : (tensor<2x8x2x1x2xf32>, tensor<2x8x2x1x2xf32>) -> tensor<2x8x2x1x2xf32>
  %logits = pc.einsum "b s k g d, v k g d -> b s v" %both, %t : (tensor<2x8x2x1x2xf32>, tensor<16x2x1x2xf32>) -> tensor<2x8x16xf32>
  pc.output logits "logits" %logits : tensor<2x8x16xf32>
  return
}

// -----

pc.program "no attention" batch 2 sequence 8 vocabulary 16 config "{}"
// expected-error @below {{a program that generates needs causal attention, which this model does not have}}
func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x8xi32>
  %t = pc.parameter "t" dims ["vocab", "out"] init <normal, 1.0> source <"t", shape = [16, 16], start = [0, 0], size = [16, 16]> : tensor<16x16xf32>
  %logits = pc.embedding %t, %tokens : (tensor<16x16xf32>, tensor<2x8xi32>) -> tensor<2x8x16xf32>
  pc.output logits "logits" %logits : tensor<2x8x16xf32>
  return
}

// -----

pc.program "documents" batch 2 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x8xi32>
  // expected-error @below {{a program that generates has no documents; import the model without --documents}}
  %starts = pc.input starts key 2 dims ["batch", "sequence"] : tensor<2x8xi32>
  return
}

// -----

pc.program "chunks" batch 2 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x8xi32>
  %t = pc.parameter "t" dims ["vocab", "kv_heads", "group", "head_dim"] init <normal, 1.0> source <"t", shape = [16, 2, 1, 2], start = [0, 0, 0, 0], size = [16, 2, 1, 2]> : tensor<16x2x1x2xf32>
  %q = pc.embedding %t, %tokens : (tensor<16x2x1x2xf32>, tensor<2x8xi32>) -> tensor<2x8x2x1x2xf32>
  %k = pc.einsum "b s k g d -> b s k d" %q : (tensor<2x8x2x1x2xf32>) -> tensor<2x8x2x2xf32>
  %o, %lse = pc.attention causal %q, %k, %k scale 0.5 : (tensor<2x8x2x1x2xf32>, tensor<2x8x2x2xf32>, tensor<2x8x2x2xf32>) -> (tensor<2x8x2x1x2xf32>, tensor<2x2x1x8xf32>)
  // expected-error @below {{a program that generates cannot have 'pc.reshape', which relates the tokens of a sequence to each other}}
  %parts = pc.reshape "b (c t) k g d -> b c t k g d" %o : (tensor<2x8x2x1x2xf32>) -> tensor<2x4x2x2x1x2xf32>
  %back = pc.reshape "b c t k g d -> b (c t) k g d" %parts : (tensor<2x4x2x2x1x2xf32>) -> tensor<2x8x2x1x2xf32>
  %logits = pc.einsum "b s k g d, v k g d -> b s v" %back, %t : (tensor<2x8x2x1x2xf32>, tensor<16x2x1x2xf32>) -> tensor<2x8x16xf32>
  pc.output logits "logits" %logits : tensor<2x8x16xf32>
  return
}
