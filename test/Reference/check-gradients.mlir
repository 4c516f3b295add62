// Every gradient rule against finite differences, one small model per group of ops; with one and with two microbatches.
// RUN: pc-opt %s -split-input-file --pc-differentiate --pc-check-gradients=samples=8 -o /dev/null | FileCheck %s
// RUN: pc-opt %s -split-input-file --pc-differentiate=microbatches=2 --pc-check-gradients=samples=4 -o /dev/null | FileCheck %s
// RUN: pc-opt %s -split-input-file --pc-pad-vocabulary=multiple=4 --pc-differentiate=optimizer=sgd --pc-check-gradients=samples=4 -o /dev/null | FileCheck %s

// Matrix product, transposed weight, bias (a factor that only the result has), one operand twice, three operands, and a sum over a factor of one operand only.
// CHECK: gradient w: 
// CHECK-NEXT: gradient a: 
// CHECK-NEXT: gradient bias: 
// CHECK-NEXT: gradient c: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %a = pc.parameter "a" dims ["embed", "ffn"] init <normal, 2.0e-02>
    source <"a", shape = [4, 6], start = [0, 0], size = [4, 6]> : tensor<4x6xf32>
  %bias = pc.parameter "bias" dims ["ffn"] init <normal, 2.0e-02>
    source <"bias", shape = [6], start = [0], size = [6]> : tensor<6xf32>
  %c = pc.parameter "c" dims ["embed", "ffn"] init <normal, 2.0e-02>
    source <"c", shape = [4, 6], start = [0, 0], size = [4, 6]> : tensor<4x6xf32>
  %h = pc.einsum "b s e, e f -> b s f" %x, %a : (tensor<2x3x4xf32>, tensor<4x6xf32>) -> tensor<2x3x6xf32>
  %bb = pc.einsum "f -> b s f" %bias : (tensor<6xf32>) -> tensor<2x3x6xf32>
  %h1 = pc.add %h, %bb : (tensor<2x3x6xf32>, tensor<2x3x6xf32>) -> tensor<2x3x6xf32>
  %h2 = pc.einsum "b s f, b s f -> b s f" %h1, %h1 : (tensor<2x3x6xf32>, tensor<2x3x6xf32>) -> tensor<2x3x6xf32>
  %y0 = pc.einsum "b s f, e f -> b s e" %h2, %c : (tensor<2x3x6xf32>, tensor<4x6xf32>) -> tensor<2x3x4xf32>
  %y1 = pc.einsum "b s f, b s e, g f -> b e s" %h1, %y0, %c : (tensor<2x3x6xf32>, tensor<2x3x4xf32>, tensor<4x6xf32>) -> tensor<2x4x3xf32>
  %y = pc.einsum "b e s -> b s e" %y1 : (tensor<2x4x3xf32>) -> tensor<2x3x4xf32>
  %loss = pc.einsum "b s e, b s e ->" %y, %y : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// add, sub, scale, copy, cast, log, exp, recip, sqrt.
// CHECK: gradient w: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %e = pc.exp %x : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %s = pc.scale %e by 5.0e-01 : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %u = pc.add %e, %s : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %r = pc.recip %u : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %q = pc.sqrt %u : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %d = pc.sub %q, %r : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %k = pc.copy %u : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %l = pc.log %k : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %z = pc.sub %l, %d : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %n = pc.cast %z : (tensor<2x3x4xf32>) -> tensor<2x3x4xf64>
  %y = pc.cast %n : (tensor<2x3x4xf64>) -> tensor<2x3x4xf32>
  %loss = pc.einsum "b s e, b s e ->" %y, %y : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// activation gelu_tanh.
// CHECK: gradient w: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %y = pc.activation gelu_tanh %x : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %loss = pc.einsum "b s e, b s e ->" %y, %y : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// activation gelu.
// CHECK: gradient w: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %y = pc.activation gelu %x : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %loss = pc.einsum "b s e, b s e ->" %y, %y : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// activation silu.
// CHECK: gradient w: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %y = pc.activation silu %x : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %loss = pc.einsum "b s e, b s e ->" %y, %y : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// activation relu.
// CHECK: gradient w: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %y = pc.activation relu %x : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %loss = pc.einsum "b s e, b s e ->" %y, %y : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// layer_norm.
// CHECK: gradient w: 
// CHECK-NEXT: gradient gamma: 
// CHECK-NEXT: gradient beta: 
// CHECK-NEXT: gradient c: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %gamma = pc.parameter "gamma" dims ["embed"] init <fill, 1.0>
    source <"gamma", shape = [4], start = [0], size = [4]> : tensor<4xf32>
  %beta = pc.parameter "beta" dims ["embed"] init <fill, 0.0>
    source <"beta", shape = [4], start = [0], size = [4]> : tensor<4xf32>
  %c = pc.parameter "c" dims ["embed", "out"] init <normal, 2.0e-02>
    source <"c", shape = [4, 4], start = [0, 0], size = [4, 4]> : tensor<4x4xf32>
  %n, %mean, %rstd = pc.layer_norm %x, %gamma, %beta eps 1.0e-05 : (tensor<2x3x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x3x4xf32>, tensor<2x3xf32>, tensor<2x3xf32>)
  %y = pc.einsum "b s e, e o -> b s o" %n, %c : (tensor<2x3x4xf32>, tensor<4x4xf32>) -> tensor<2x3x4xf32>
  %loss = pc.einsum "b s e, b s e ->" %y, %y : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// rms_norm.
// CHECK: gradient w: 
// CHECK-NEXT: gradient gamma: 
// CHECK-NEXT: gradient c: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %gamma = pc.parameter "gamma" dims ["embed"] init <fill, 1.0>
    source <"gamma", shape = [4], start = [0], size = [4]> : tensor<4xf32>
  %c = pc.parameter "c" dims ["embed", "out"] init <normal, 2.0e-02>
    source <"c", shape = [4, 4], start = [0, 0], size = [4, 4]> : tensor<4x4xf32>
  %n, %rstd = pc.rms_norm %x, %gamma eps 1.0e-05 : (tensor<2x3x4xf32>, tensor<4xf32>) -> (tensor<2x3x4xf32>, tensor<2x3xf32>)
  %y = pc.einsum "b s e, e o -> b s o" %n, %c : (tensor<2x3x4xf32>, tensor<4x4xf32>) -> tensor<2x3x4xf32>
  %loss = pc.einsum "b s e, b s e ->" %y, %y : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// rope and causal attention, with two query heads for each of two key heads.
// CHECK: gradient w: 
// CHECK-NEXT: gradient q: 
// CHECK-NEXT: gradient k: 
// CHECK-NEXT: gradient v: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %q = pc.parameter "q" dims ["embed", "kv_heads", "heads", "head_dim"] init <normal, 2.0e-02>
    source <"q", shape = [4, 2, 2, 6], start = [0, 0, 0, 0], size = [4, 2, 2, 6]> : tensor<4x2x2x6xf32>
  %k = pc.parameter "k" dims ["embed", "kv_heads", "head_dim"] init <normal, 2.0e-02>
    source <"k", shape = [4, 2, 6], start = [0, 0, 0], size = [4, 2, 6]> : tensor<4x2x6xf32>
  %v = pc.parameter "v" dims ["embed", "kv_heads", "head_dim"] init <normal, 2.0e-02>
    source <"v", shape = [4, 2, 6], start = [0, 0, 0], size = [4, 2, 6]> : tensor<4x2x6xf32>
  %cos = pc.rope_table cos inv_freq [1.0, 0.3, 0.1] scale 1.1 : tensor<3x3xf32>
  %sin = pc.rope_table sin inv_freq [1.0, 0.3, 0.1] scale 1.1 : tensor<3x3xf32>
  %q0 = pc.einsum "b s e, e k g d -> b s k g d" %x, %q : (tensor<2x3x4xf32>, tensor<4x2x2x6xf32>) -> tensor<2x3x2x2x6xf32>
  %k0 = pc.einsum "b s e, e k d -> b s k d" %x, %k : (tensor<2x3x4xf32>, tensor<4x2x6xf32>) -> tensor<2x3x2x6xf32>
  %v0 = pc.einsum "b s e, e k d -> b s k d" %x, %v : (tensor<2x3x4xf32>, tensor<4x2x6xf32>) -> tensor<2x3x2x6xf32>
  %q1 = pc.rope %q0, %cos, %sin : (tensor<2x3x2x2x6xf32>, tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<2x3x2x2x6xf32>
  %k1 = pc.rope %k0, %cos, %sin : (tensor<2x3x2x6xf32>, tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<2x3x2x6xf32>
  %o, %lse = pc.attention causal %q1, %k1, %v0 scale 7.0e-01 : (tensor<2x3x2x2x6xf32>, tensor<2x3x2x6xf32>, tensor<2x3x2x6xf32>) -> (tensor<2x3x2x2x6xf32>, tensor<2x2x2x3xf32>)
  %loss = pc.einsum "b s k g d, b s k g d ->" %o, %o : (tensor<2x3x2x2x6xf32>, tensor<2x3x2x2x6xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// One product computes q, k and v. rope and attention read its parts.
// CHECK: gradient w: 
// CHECK-NEXT: gradient q: 
// CHECK-NEXT: gradient k: 
// CHECK-NEXT: gradient v: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %p = pc.parameter "qkv" dims ["embed", "kv_heads", "qkv", "head_dim"] init <normal, 2.0e-02> along 2 parts [
    #pc.part<"q", key = 1, size = 2, source = <"q", shape = [4, 24], start = [0, 0], size = [4, 24]>>,
    #pc.part<"k", key = 2, size = 1, source = <"k", shape = [4, 12], start = [0, 0], size = [4, 12]>>,
    #pc.part<"v", key = 3, size = 1, source = <"v", shape = [4, 12], start = [0, 0], size = [4, 12]>>] : tensor<4x2x4x6xf32>
  %cos = pc.rope_table cos inv_freq [1.0, 0.3, 0.1] scale 1.1 : tensor<3x3xf32>
  %sin = pc.rope_table sin inv_freq [1.0, 0.3, 0.1] scale 1.1 : tensor<3x3xf32>
  %x0 = pc.einsum "b s e, e k g d -> b s k g d" %x, %p : (tensor<2x3x4xf32>, tensor<4x2x4x6xf32>) -> tensor<2x3x2x4x6xf32>
  %q1, %k1, %v0 = pc.split_qkv %x0 rope %cos, %sin : (tensor<2x3x2x4x6xf32>, tensor<3x3xf32>, tensor<3x3xf32>) -> (tensor<2x3x2x2x6xf32>, tensor<2x3x2x6xf32>, tensor<2x3x2x6xf32>)
  %o, %lse = pc.attention causal %q1, %k1, %v0 scale 7.0e-01 : (tensor<2x3x2x2x6xf32>, tensor<2x3x2x6xf32>, tensor<2x3x2x6xf32>) -> (tensor<2x3x2x2x6xf32>, tensor<2x2x2x3xf32>)
  %po, %plse = pc.packed_attention causal %x0 scale 7.0e-01 : (tensor<2x3x2x4x6xf32>) -> (tensor<2x3x2x2x6xf32>, tensor<2x2x2x3xf32>)
  %loss = pc.einsum "b s k g d, b s k g d ->" %o, %po : (tensor<2x3x2x2x6xf32>, tensor<2x3x2x2x6xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// Attention to all positions, with three query heads for one key head, and inverse rope.
// CHECK: gradient w: 
// CHECK-NEXT: gradient q: 
// CHECK-NEXT: gradient k: 
// CHECK-NEXT: gradient v: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %q = pc.parameter "q" dims ["embed", "kv_heads", "heads", "head_dim"] init <normal, 2.0e-02>
    source <"q", shape = [4, 1, 3, 6], start = [0, 0, 0, 0], size = [4, 1, 3, 6]> : tensor<4x1x3x6xf32>
  %k = pc.parameter "k" dims ["embed", "kv_heads", "head_dim"] init <normal, 2.0e-02>
    source <"k", shape = [4, 1, 6], start = [0, 0, 0], size = [4, 1, 6]> : tensor<4x1x6xf32>
  %v = pc.parameter "v" dims ["embed", "kv_heads", "head_dim"] init <normal, 2.0e-02>
    source <"v", shape = [4, 1, 6], start = [0, 0, 0], size = [4, 1, 6]> : tensor<4x1x6xf32>
  %cos = pc.rope_table cos inv_freq [1.0, 0.3, 0.1] scale 1.1 : tensor<3x3xf32>
  %sin = pc.rope_table sin inv_freq [1.0, 0.3, 0.1] scale 1.1 : tensor<3x3xf32>
  %q0 = pc.einsum "b s e, e k g d -> b s k g d" %x, %q : (tensor<2x3x4xf32>, tensor<4x1x3x6xf32>) -> tensor<2x3x1x3x6xf32>
  %k0 = pc.einsum "b s e, e k d -> b s k d" %x, %k : (tensor<2x3x4xf32>, tensor<4x1x6xf32>) -> tensor<2x3x1x6xf32>
  %v0 = pc.einsum "b s e, e k d -> b s k d" %x, %v : (tensor<2x3x4xf32>, tensor<4x1x6xf32>) -> tensor<2x3x1x6xf32>
  %q1 = pc.rope inverse %q0, %cos, %sin : (tensor<2x3x1x3x6xf32>, tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<2x3x1x3x6xf32>
  %k1 = pc.rope inverse %k0, %cos, %sin : (tensor<2x3x1x6xf32>, tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<2x3x1x6xf32>
  %o, %lse = pc.attention %q1, %k1, %v0 scale 7.0e-01 : (tensor<2x3x1x3x6xf32>, tensor<2x3x1x6xf32>, tensor<2x3x1x6xf32>) -> (tensor<2x3x1x3x6xf32>, tensor<2x1x3x3xf32>)
  %loss = pc.einsum "b s k g d, b s k g d ->" %o, %o : (tensor<2x3x1x3x6xf32>, tensor<2x3x1x3x6xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// Two tables: one of positions (iota), one also used for the logits; cross_entropy.
// CHECK: gradient w: 
// CHECK-NEXT: gradient p: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %p = pc.parameter "p" dims ["position", "embed"] init <normal, 2.0e-02>
    source <"p", shape = [3, 4], start = [0, 0], size = [3, 4]> : tensor<3x4xf32>
  %i = pc.iota -> tensor<3xi32>
  %pe = pc.embedding %p, %i : (tensor<3x4xf32>, tensor<3xi32>) -> tensor<3x4xf32>
  %pb = pc.einsum "s e -> b s e" %pe : (tensor<3x4xf32>) -> tensor<2x3x4xf32>
  %h = pc.add %x, %pb : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %logits = pc.einsum "b s e, v e -> b s v" %h, %w : (tensor<2x3x4xf32>, tensor<5x4xf32>) -> tensor<2x3x5xf32>
  %targets = pc.input targets dims ["batch", "sequence"] : tensor<2x3xi32>
  %nll = pc.cross_entropy %logits, %targets : (tensor<2x3x5xf32>, tensor<2x3xi32>) -> tensor<2x3xf32>
  %sum = pc.einsum "b s ->" %nll : (tensor<2x3xf32>) -> tensor<f32>
  %loss = pc.scale %sum by 1.6e-01 : (tensor<f32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// mask_padding makes the last two entries constant. A product multiplies them with unmasked entries.
// CHECK: gradient w: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %k = pc.mask_padding %x valid 2 value 3.0 : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %y = pc.einsum "b s e, b s e -> b s e" %k, %x : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %loss = pc.einsum "b s e, b s e ->" %y, %y : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// dropout of values whose last dim is not a multiple of 8, and of the weights of attention.
// CHECK: gradient w: 
// CHECK-NEXT: gradient q: 
// CHECK-NEXT: gradient k: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %q0 = pc.parameter "q" dims ["embed", "kv_heads", "group", "head_dim"] init <normal, 2.0e-02>
    source <"q", shape = [4, 24], start = [0, 0], size = [4, 24]> : tensor<4x2x2x6xf32>
  %k0 = pc.parameter "k" dims ["embed", "kv_heads", "head_dim"] init <normal, 2.0e-02>
    source <"k", shape = [4, 12], start = [0, 0], size = [4, 12]> : tensor<4x2x6xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %first = pc.input random key 0 dims ["random"] : tensor<5xi32>
  %second = pc.input random key 1 dims ["random"] : tensor<5xi32>
  %e = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %x = pc.dropout %e random %first drop <19661> : (tensor<2x3x4xf32>, tensor<5xi32>) -> tensor<2x3x4xf32>
  %q = pc.einsum "b s e, e k g d -> b s k g d" %x, %q0 : (tensor<2x3x4xf32>, tensor<4x2x2x6xf32>) -> tensor<2x3x2x2x6xf32>
  %k = pc.einsum "b s e, e k d -> b s k d" %x, %k0 : (tensor<2x3x4xf32>, tensor<4x2x6xf32>) -> tensor<2x3x2x6xf32>
  %o, %lse = pc.attention causal %q, %k, %k random %second scale 7.0e-01 drop <19661> : (tensor<2x3x2x2x6xf32>, tensor<2x3x2x6xf32>, tensor<2x3x2x6xf32>, tensor<5xi32>) -> (tensor<2x3x2x2x6xf32>, tensor<2x2x2x3xf32>)
  %loss = pc.einsum "b s k g d, b s k g d ->" %o, %o : (tensor<2x3x2x2x6xf32>, tensor<2x3x2x2x6xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// Attention with a window, documents, a cap of scores and addends; a part of each head rotated; tanh.
// CHECK: gradient w: 
// CHECK-NEXT: gradient q: 
// CHECK-NEXT: gradient k: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %q0 = pc.parameter "q" dims ["embed", "kv_heads", "group", "head_dim"] init <normal, 2.0e-02>
    source <"q", shape = [4, 24], start = [0, 0], size = [4, 24]> : tensor<4x2x2x6xf32>
  %k0 = pc.parameter "k" dims ["embed", "kv_heads", "head_dim"] init <normal, 2.0e-02>
    source <"k", shape = [4, 12], start = [0, 0], size = [4, 12]> : tensor<4x2x6xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %cos = pc.rope_table cos inv_freq [1.0, 0.3] scale 1.0 : tensor<3x2xf32>
  %sin = pc.rope_table sin inv_freq [1.0, 0.3] scale 1.0 : tensor<3x2xf32>
  %number = pc.iota from -2 -> tensor<5xi32>
  %distance = pc.cast %number : (tensor<5xi32>) -> tensor<5xf32>
  %addends = pc.einsum "r -> k g r" %distance : (tensor<5xf32>) -> tensor<2x2x5xf32>
  %e = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %x = pc.activation tanh %e : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %q = pc.einsum "b s e, e k g d -> b s k g d" %x, %q0 : (tensor<2x3x4xf32>, tensor<4x2x2x6xf32>) -> tensor<2x3x2x2x6xf32>
  %k = pc.einsum "b s e, e k d -> b s k d" %x, %k0 : (tensor<2x3x4xf32>, tensor<4x2x6xf32>) -> tensor<2x3x2x6xf32>
  %k1 = pc.rope %k, %cos, %sin : (tensor<2x3x2x6xf32>, tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<2x3x2x6xf32>
  %starts = pc.input starts key 1 dims ["batch", "sequence"] : tensor<2x3xi32>
  %o, %lse = pc.attention causal %q, %k1, %k bias %addends starts %starts scale 7.0e-01 window 2 softcap 5.0e-01 : (tensor<2x3x2x2x6xf32>, tensor<2x3x2x6xf32>, tensor<2x3x2x6xf32>, tensor<2x2x5xf32>, tensor<2x3xi32>) -> (tensor<2x3x2x2x6xf32>, tensor<2x2x2x3xf32>)
  %loss = pc.einsum "b s k g d, b s k g d ->" %o, %o : (tensor<2x3x2x2x6xf32>, tensor<2x3x2x2x6xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// Attention of a decoder with more keys than queries and with dropout. A table adds a number by distance to each score.
// CHECK: gradient w: 
// CHECK-NEXT: gradient q: 
// CHECK-NEXT: gradient k: 
// CHECK-NEXT: gradient table: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 masked targets 2 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %q0 = pc.parameter "q" dims ["embed", "kv_heads", "group", "head_dim"] init <normal, 2.0e-02>
    source <"q", shape = [4, 24], start = [0, 0], size = [4, 24]> : tensor<4x2x2x6xf32>
  %k0 = pc.parameter "k" dims ["embed", "kv_heads", "head_dim"] init <normal, 2.0e-02>
    source <"k", shape = [4, 12], start = [0, 0], size = [4, 12]> : tensor<4x2x6xf32>
  %table = pc.parameter "table" dims ["buckets", "kv_heads"] init <normal, 2.0e-02>
    source <"table", shape = [3, 2], start = [0, 0], size = [3, 2]> : tensor<3x2xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %shifted = pc.input shifted key 1 dims ["batch", "sequence"] : tensor<2x2xi32>
  %random = pc.input random key 0 dims ["random"] : tensor<5xi32>
  %buckets = pc.iota pieces [0, 1, 3] values [2, 0, 1] -> tensor<4xi32>
  %rows = pc.embedding %table, %buckets : (tensor<3x2xf32>, tensor<4xi32>) -> tensor<4x2xf32>
  %addends = pc.einsum "r k -> k g r" %rows : (tensor<4x2xf32>) -> tensor<2x2x4xf32>
  %e = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %y = pc.embedding %w, %shifted : (tensor<5x4xf32>, tensor<2x2xi32>) -> tensor<2x2x4xf32>
  %q = pc.einsum "b s e, e k g d -> b s k g d" %y, %q0 : (tensor<2x2x4xf32>, tensor<4x2x2x6xf32>) -> tensor<2x2x2x2x6xf32>
  %k = pc.einsum "b s e, e k d -> b s k d" %e, %k0 : (tensor<2x3x4xf32>, tensor<4x2x6xf32>) -> tensor<2x3x2x6xf32>
  %o, %lse = pc.attention %q, %k, %k bias %addends random %random scale 7.0e-01 softcap 5.0e-01 drop <19661> : (tensor<2x2x2x2x6xf32>, tensor<2x3x2x6xf32>, tensor<2x3x2x6xf32>, tensor<2x2x4xf32>, tensor<5xi32>) -> (tensor<2x2x2x2x6xf32>, tensor<2x2x2x2xf32>)
  %loss = pc.einsum "b s k g d, b s k g d ->" %o, %o : (tensor<2x2x2x2x6xf32>, tensor<2x2x2x2x6xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// Softmax, and the product with a choice, which has no gradient itself.
// CHECK: gradient w: 
// CHECK-NEXT: gradient router: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %router = pc.parameter "router" dims ["experts", "embed"] init <normal, 2.0e-02>
    source <"router", shape = [6, 4], start = [0, 0], size = [6, 4]> : tensor<6x4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %logits = pc.einsum "b s e, n e -> b s n" %x, %router : (tensor<2x3x4xf32>, tensor<6x4xf32>) -> tensor<2x3x6xf32>
  %scores = pc.softmax %logits : (tensor<2x3x6xf32>) -> tensor<2x3x6xf32>
  %chosen = pc.top_k %logits k 2 : (tensor<2x3x6xf32>) -> tensor<2x3x6xf32>
  %taken = pc.admit %chosen capacity 1 : (tensor<2x3x6xf32>) -> tensor<2x3x6xf32>
  %each = pc.einsum "b s n, b s n -> b s n" %scores, %taken routed 2 : (tensor<2x3x6xf32>, tensor<2x3x6xf32>) -> tensor<2x3x6xf32>
  %loss = pc.einsum "b s n, b s n ->" %each, %each : (tensor<2x3x6xf32>, tensor<2x3x6xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// Attention with sinks, rotation of interleaved pairs of a part of each head, a shared key, and values of another
// width, which pc.columns pads.
// CHECK: gradient w: 
// CHECK-NEXT: gradient q: 
// CHECK-NEXT: gradient k: 
// CHECK-NEXT: gradient sinks: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %q0 = pc.parameter "q" dims ["embed", "kv_heads", "group", "head_dim"] init <normal, 2.0e-02>
    source <"q", shape = [4, 24], start = [0, 0], size = [4, 24]> : tensor<4x2x2x6xf32>
  %k0 = pc.parameter "k" dims ["embed", "kv_heads", "head_dim"] init <normal, 2.0e-02>
    source <"k", shape = [4, 4], start = [0, 0], size = [4, 4]> : tensor<4x2x2xf32>
  %sinks = pc.parameter "sinks" dims ["kv_heads", "group"] init <normal, 1.0>
    source <"sinks", shape = [4], start = [0], size = [4]> : tensor<2x2xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %cos = pc.rope_table cos inv_freq [1.0, 0.3] scale 1.0 : tensor<3x2xf32>
  %sin = pc.rope_table sin inv_freq [1.0, 0.3] scale 1.0 : tensor<3x2xf32>
  %e = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %x = pc.activation sigmoid %e : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %q = pc.einsum "b s e, e k g d -> b s k g d" %x, %q0 : (tensor<2x3x4xf32>, tensor<4x2x2x6xf32>) -> tensor<2x3x2x2x6xf32>
  %q1 = pc.rope interleaved %q, %cos, %sin first 2 : (tensor<2x3x2x2x6xf32>, tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<2x3x2x2x6xf32>
  %k = pc.einsum "b s e, e k d -> b s k d" %x, %k0 : (tensor<2x3x4xf32>, tensor<4x2x2xf32>) -> tensor<2x3x2x2xf32>
  %shared = pc.rope interleaved %x, %cos, %sin : (tensor<2x3x4xf32>, tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<2x3x4xf32>
  %behind = pc.columns %shared from -2 : (tensor<2x3x4xf32>) -> tensor<2x3x6xf32>
  %ofall = pc.einsum "b s d -> b s k d" %behind : (tensor<2x3x6xf32>) -> tensor<2x3x2x6xf32>
  %wide = pc.columns %k from 0 : (tensor<2x3x2x2xf32>) -> tensor<2x3x2x6xf32>
  %k1 = pc.add %wide, %ofall : (tensor<2x3x2x6xf32>, tensor<2x3x2x6xf32>) -> tensor<2x3x2x6xf32>
  %o, %lse = pc.attention causal %q1, %k1, %wide sinks %sinks scale 7.0e-01 window 2 : (tensor<2x3x2x2x6xf32>, tensor<2x3x2x6xf32>, tensor<2x3x2x6xf32>, tensor<2x2xf32>) -> (tensor<2x3x2x2x6xf32>, tensor<2x2x2x3xf32>)
  %narrow = pc.columns %o from 1 : (tensor<2x3x2x2x6xf32>) -> tensor<2x3x2x2x2xf32>
  %loss = pc.einsum "b s k g d, b s k g d ->" %narrow, %narrow : (tensor<2x3x2x2x2xf32>, tensor<2x3x2x2x2xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// Clamps on both sides, and only from above.
// CHECK: gradient w: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 1.0>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %both = pc.clamp %x from -0.5 to 0.7 : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %above = pc.clamp %x to 0.3 : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %loss = pc.einsum "b s e, b s e ->" %both, %above : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// A z-loss is the square of the logarithm of a sum of exponentials.
// CHECK: gradient w: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 1.0>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %logits = pc.einsum "b s e, v e -> b s v" %x, %w : (tensor<2x3x4xf32>, tensor<5x4xf32>) -> tensor<2x3x5xf32>
  %z = pc.logsumexp %logits : (tensor<2x3x5xf32>) -> tensor<2x3xf32>
  %loss = pc.einsum "b s, b s ->" %z, %z : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// Sine, cosine, and the larger of two numbers.
// CHECK: gradient w: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 1.0>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %sine = pc.sin %x : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %cosine = pc.cos %x : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %larger = pc.select less %sine, %cosine, %cosine, %sine
    : (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %loss = pc.einsum "b s e, b s e ->" %larger, %x : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// A recurrence whose factor has all dims, and one back over the channels whose factor has the sequence only.
// CHECK: gradient w: 
// CHECK-NEXT: gradient decay: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 1.0>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %decay = pc.parameter "decay" dims ["embed"] init <normal, 1.0>
    source <"decay", shape = [4], start = [0], size = [4]> : tensor<4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %d = pc.einsum "e -> b s e" %decay : (tensor<4xf32>) -> tensor<2x3x4xf32>
  %a = pc.einsum "b s e, b s e -> b s e" %x, %d : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %h = pc.recurrence "b s e, b s e -> b s e" along "s" %a, %x : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %sums = pc.einsum "b s e -> s b" %h : (tensor<2x3x4xf32>) -> tensor<3x2xf32>
  %y = pc.recurrence "s b, b s e -> b s e" along "e" reverse %sums, %x : (tensor<3x2xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %loss = pc.einsum "b s e, b s e ->" %y, %h : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// Factors that do not depend on the step: one per channel, with the recurrence in both directions.
// CHECK: gradient w: 
// CHECK-NEXT: gradient decay: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 1.0>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %decay = pc.parameter "decay" dims ["embed"] init <normal, 1.0>
    source <"decay", shape = [4], start = [0], size = [4]> : tensor<4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %h = pc.recurrence "e, b s e -> b s e" along "s" %decay, %x : (tensor<4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %y = pc.recurrence "e, b s e -> b s e" along "s" reverse %decay, %h : (tensor<4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %loss = pc.einsum "b s e, b s e ->" %y, %h : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// Factors without the last dim, whose product with each step is a state of several numbers.
// CHECK: gradient w: 
// CHECK-NEXT: gradient decay: 
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 1.0>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %decay = pc.parameter "decay" dims ["embed"] init <normal, 1.0>
    source <"decay", shape = [4], start = [0], size = [4]> : tensor<4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %states = pc.einsum "b s e, b s n -> b s e n" %x, %x : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4x4xf32>
  %a = pc.einsum "b s e, e -> b s" %x, %decay : (tensor<2x3x4xf32>, tensor<4xf32>) -> tensor<2x3xf32>
  %all = pc.recurrence "b s, b s e n -> b s e n" along "s" %a, %states : (tensor<2x3xf32>, tensor<2x3x4x4xf32>) -> tensor<2x3x4x4xf32>
  %h = pc.einsum "b s e n, b s n -> b s e" %all, %x : (tensor<2x3x4x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %some = pc.recurrence "b s n, b s e n -> b s e n" along "s" reverse %x, %all : (tensor<2x3x4xf32>, tensor<2x3x4x4xf32>) -> tensor<2x3x4x4xf32>
  %y = pc.einsum "b s e n -> b s e" %some : (tensor<2x3x4x4xf32>) -> tensor<2x3x4xf32>
  %loss = pc.einsum "b s e, b s e ->" %y, %h : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// A value that only a choice reads has no gradient. This is not an error.
// CHECK: gradient w: 
// CHECK-NEXT: gradient router: 
// CHECK-NOT: gradient correction
pc.program "toy" batch 2 sequence 3 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 2.0e-02>
    source <"w", shape = [5, 4], start = [0, 0], size = [5, 4]> : tensor<5x4xf32>
  %router = pc.parameter "router" dims ["experts", "embed"] init <normal, 2.0e-02>
    source <"router", shape = [6, 4], start = [0, 0], size = [6, 4]> : tensor<6x4xf32>
  %correction = pc.parameter "correction" dims ["experts"] init <normal, 2.0e-02>
    source <"correction", shape = [6], start = [0], size = [6]> : tensor<6xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x3xi32>
  %x = pc.embedding %w, %tokens : (tensor<5x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %logits = pc.einsum "b s e, n e -> b s n" %x, %router : (tensor<2x3x4xf32>, tensor<6x4xf32>) -> tensor<2x3x6xf32>
  %scores = pc.activation sigmoid %logits : (tensor<2x3x6xf32>) -> tensor<2x3x6xf32>
  %added = pc.einsum "n -> b s n" %correction : (tensor<6xf32>) -> tensor<2x3x6xf32>
  %sum = pc.add %scores, %added : (tensor<2x3x6xf32>, tensor<2x3x6xf32>) -> tensor<2x3x6xf32>
  %groups = pc.top_groups %sum groups 3 keep 2 : (tensor<2x3x6xf32>) -> tensor<2x3x6xf32>
  %best = pc.einsum "b s n, b s n -> b s n" %sum, %groups : (tensor<2x3x6xf32>, tensor<2x3x6xf32>) -> tensor<2x3x6xf32>
  %chosen = pc.top_k %best k 2 : (tensor<2x3x6xf32>) -> tensor<2x3x6xf32>
  %each = pc.einsum "b s n, b s n -> b s n" %scores, %chosen : (tensor<2x3x6xf32>, tensor<2x3x6xf32>) -> tensor<2x3x6xf32>
  %loss = pc.einsum "b s n, b s n ->" %each, %each : (tensor<2x3x6xf32>, tensor<2x3x6xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// Views and lookups: strided windows of a sequence, dims that are divided and merged, and rows that tokens look up in a
// value of their sequence, or of the whole batch.
// CHECK: gradient w: 
// CHECK-NEXT: gradient mix: 
// CHECK-NEXT: gradient table: 
pc.program "toy" batch 2 sequence 4 vocabulary 5 config "{}"
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 1.0>
    source <"w", shape = [5, 6], start = [0, 0], size = [5, 6]> : tensor<5x6xf32>
  %mix = pc.parameter "mix" dims ["sequence", "vocab"] init <normal, 1.0>
    source <"mix", shape = [4, 5], start = [0, 0], size = [4, 5]> : tensor<4x5xf32>
  %table = pc.parameter "table" dims ["vocab", "high", "low"] init <normal, 1.0>
    source <"table", shape = [5, 6], start = [0, 0], size = [5, 6]> : tensor<5x2x3xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x4xi32>
  %e = pc.embedding %w, %tokens : (tensor<5x6xf32>, tensor<2x4xi32>) -> tensor<2x4x6xf32>
  %x = pc.activation sigmoid %e : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32>
  %some = pc.columns %x dim 1 from -1 step 2 : (tensor<2x4x6xf32>) -> tensor<2x3x6xf32>
  %spread = pc.columns %some dim 1 from 1 step 2 every 3 : (tensor<2x3x6xf32>) -> tensor<2x4x6xf32>
  %apart = pc.columns %spread from 3 : (tensor<2x4x6xf32>) -> tensor<2x4x5xf32>
  %square = pc.einsum "b s e, b s e ->" %apart, %apart : (tensor<2x4x5xf32>, tensor<2x4x5xf32>) -> tensor<f32>
  %cut = pc.reshape "b s (h l) -> b s h l" %x : (tensor<2x4x6xf32>) -> tensor<2x4x2x3xf32>
  %rows = pc.embedding %table, %tokens : (tensor<5x2x3xf32>, tensor<2x4xi32>) -> tensor<2x4x2x3xf32>
  %product = pc.einsum "b s h l, b s h l -> b s l h" %cut, %rows : (tensor<2x4x2x3xf32>, tensor<2x4x2x3xf32>) -> tensor<2x4x3x2xf32>
  %flat = pc.reshape "b s l h -> b (s l) h" %product : (tensor<2x4x3x2xf32>) -> tensor<2x12x2xf32>
  %wide = pc.activation tanh %flat : (tensor<2x12x2xf32>) -> tensor<2x12x2xf32>
  %back = pc.reshape "b (s l) h -> b s (l h)" %wide : (tensor<2x12x2xf32>) -> tensor<2x4x6xf32>
  %words = pc.einsum "b s e, s v -> b v e" %back, %mix : (tensor<2x4x6xf32>, tensor<4x5xf32>) -> tensor<2x5x6xf32>
  %own = pc.embedding %words, %tokens batch 1 : (tensor<2x5x6xf32>, tensor<2x4xi32>) -> tensor<2x4x6xf32>
  %all = pc.activation tanh %w : (tensor<5x6xf32>) -> tensor<5x6xf32>
  %shared = pc.embedding %all, %tokens : (tensor<5x6xf32>, tensor<2x4xi32>) -> tensor<2x4x6xf32>
  %y = pc.einsum "b s e, b s e ->" %own, %shared : (tensor<2x4x6xf32>, tensor<2x4x6xf32>) -> tensor<f32>
  %loss = pc.add %y, %square : (tensor<f32>, tensor<f32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
