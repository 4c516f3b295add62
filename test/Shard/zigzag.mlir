// With ring attention, ops that depend on the order of the sequence are refused by name. Other ops get the zigzag
// order.
// RUN: pc-opt %s --pc-zigzag=ranks=2 -split-input-file -verify-diagnostics | FileCheck %s

// A sum over earlier positions, as a product with a triangle. The triangle compares two counts of the sequence, which
// both count positions. Then a softmax over the sequence.
// CHECK: pc.program "scan" {{.*}} zigzag 2
pc.program "scan" batch 2 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x8xi32>
  %table = pc.parameter "table" dims ["vocab", "embed"] init <fill, 1.0> source <"table", shape = [16, 4], start = [0, 0], size = [16, 4]> : tensor<16x4xf32>
  %x = pc.embedding %table, %tokens : (tensor<16x4xf32>, tensor<2x8xi32>) -> tensor<2x8x4xf32>
  %i = pc.iota from 1 -> tensor<8xi32>
  %j = pc.iota -> tensor<8xi32>
  %a = pc.cast %i : (tensor<8xi32>) -> tensor<8xf32>
  %b = pc.cast %j : (tensor<8xi32>) -> tensor<8xf32>
  %to = pc.einsum "s -> s t" %a : (tensor<8xf32>) -> tensor<8x8xf32>
  %from = pc.einsum "t -> s t" %b : (tensor<8xf32>) -> tensor<8x8xf32>
  %d = pc.sub %to, %from : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %triangle = pc.clamp %d from 0.0 to 1.0 : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %y = pc.einsum "b t e, s t -> b e s" %x, %triangle : (tensor<2x8x4xf32>, tensor<8x8xf32>) -> tensor<2x4x8xf32>
  %turned = pc.einsum "b s e -> b e s" %x : (tensor<2x8x4xf32>) -> tensor<2x4x8xf32>
  %both = pc.add %turned, %y : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %z = pc.softmax %both : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %logits = pc.einsum "b e s, v e -> b s v" %z, %table : (tensor<2x4x8xf32>, tensor<16x4xf32>) -> tensor<2x8x16xf32>
  pc.output logits "logits" %logits : tensor<2x8x16xf32>
  return
}

// -----

pc.program "table" batch 2 sequence 8 vocabulary 16 config "{}"
func.func @model(%x: tensor<2x8x4xf32>) {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x8xi32>
  %table = pc.parameter "table" dims ["vocab", "embed"] init <fill, 1.0> source <"table", shape = [16, 4], start = [0, 0], size = [16, 4]> : tensor<16x4xf32>
  %e = pc.embedding %table, %tokens : (tensor<16x4xf32>, tensor<2x8xi32>) -> tensor<2x8x4xf32>
  // expected-error @below {{pc-zigzag: 'pc.parameter' op 'positions' has an entry for each token of the sequence (dim 0, 'position'); ring attention reorders the sequence, so use --context-parallel=heads, which keeps its order}}
  %p = pc.parameter "positions" dims ["position", "embed"] init <fill, 1.0> source <"positions", shape = [8, 4], start = [0, 0], size = [8, 4]> : tensor<8x4xf32>
  %all = pc.einsum "s e -> b s e" %p : (tensor<8x4xf32>) -> tensor<2x8x4xf32>
  %y = pc.add %e, %all : (tensor<2x8x4xf32>, tensor<2x8x4xf32>) -> tensor<2x8x4xf32>
  return
}

// -----

pc.program "convolution" batch 2 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x8xi32>
  %table = pc.parameter "table" dims ["vocab", "embed"] init <fill, 1.0> source <"table", shape = [16, 4], start = [0, 0], size = [16, 4]> : tensor<16x4xf32>
  %e = pc.embedding %table, %tokens : (tensor<16x4xf32>, tensor<2x8xi32>) -> tensor<2x8x4xf32>
  %rows = pc.einsum "b s e -> b e s" %e : (tensor<2x8x4xf32>) -> tensor<2x4x8xf32>
  // expected-error @below {{pc-zigzag: 'pc.columns' op depends on the order of the sequence, which is dim 2 of an operand}}
  %shifted = pc.columns %rows from -1 : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return
}

// -----

pc.program "count" batch 2 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x8xi32>
  // expected-error @below {{pc-zigzag: 'pc.iota' op counts something that is not the positions of the sequence}}
  %i = pc.iota -> tensor<4xi32>
  return
}

// -----

pc.program "rotary" batch 2 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x8xi32>
  // expected-error @below {{pc-zigzag: 'pc.rope_table' op has positions that do not belong to the tokens' sequence}}
  %cos = pc.rope_table cos inv_freq [1.0] scale 1.0 : tensor<8x1xf32>
  return
}

// -----

pc.program "lookup" batch 2 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x8xi32>
  %targets = pc.input targets dims ["batch", "sequence"] : tensor<2x8xi32>
  %weights = pc.input loss_weights dims ["batch", "sequence"] : tensor<2x8xf32>
  %table = pc.einsum "b s -> s b" %weights : (tensor<2x8xf32>) -> tensor<8x2xf32>
  // expected-error @below {{pc-zigzag: 'pc.embedding' op depends on the order of the sequence, which is dim 0 of an operand}}
  %e = pc.embedding %table, %tokens : (tensor<8x2xf32>, tensor<2x8xi32>) -> tensor<2x8x2xf32>
  return
}

// -----

pc.program "square" batch 8 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  // expected-error @below {{pc-zigzag: 'pc.input' op has the sequence in a dim that should not be the sequence}}
  %weights = pc.input loss_weights dims ["batch", "sequence"] : tensor<8x8xf32>
  %turned = pc.einsum "b s -> s b" %weights : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %sum = pc.add %weights, %turned : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return
}

// -----

pc.program "shown" batch 2 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %weights = pc.input loss_weights dims ["batch", "sequence"] : tensor<2x8xf32>
  %rows = pc.einsum "b s -> s b" %weights : (tensor<2x8xf32>) -> tensor<8x2xf32>
  // expected-error @below {{pc-zigzag: 'pc.output' op outputs logits whose second dim is not the tokens' sequence}}
  pc.output logits "logits" %rows : tensor<8x2xf32>
  return
}

// -----

pc.program "memory" batch 2 sequence 8 vocabulary 16 config "{}"
func.func @model(%q: tensor<2x8x1x1x2xf32>, %memory: tensor<2x8x1x2xf32>) {
  %weights = pc.input loss_weights dims ["batch", "sequence"] : tensor<2x8xf32>
  %two = pc.einsum "b s -> b s k g d" %weights : (tensor<2x8xf32>) -> tensor<2x8x1x1x2xf32>
  // expected-error @below {{pc-zigzag: 'pc.attention' op has queries or keys whose dim is not the tokens' sequence}}
  %o, %lse = pc.attention %two, %memory, %memory scale 0.5 : (tensor<2x8x1x1x2xf32>, tensor<2x8x1x2xf32>, tensor<2x8x1x2xf32>) -> (tensor<2x8x1x1x2xf32>, tensor<2x1x1x8xf32>)
  return
}

// -----

pc.program "dropout" batch 2 sequence 8 vocabulary 16 config "{}"
func.func @model() {
  %weights = pc.input loss_weights dims ["batch", "sequence"] : tensor<2x8xf32>
  %random = pc.input random key 0 dims ["random"] : tensor<5xi32>
  %rows = pc.einsum "b s -> s b" %weights : (tensor<2x8xf32>) -> tensor<8x2xf32>
  // expected-error @below {{pc-zigzag: 'pc.dropout' op applies dropout to a value whose second dim, and no other, should be the sequence}}
  %some = pc.dropout %rows random %random drop <6554> : (tensor<8x2xf32>, tensor<5xi32>) -> tensor<8x2xf32>
  return
}

// -----

// Each of the 4 chunks has 64 tokens, and each scale belongs to 128.
pc.program "blocks" batch 2 sequence 256 vocabulary 16 config "{}"
func.func @model() {
  %weights = pc.input loss_weights dims ["batch", "sequence"] : tensor<2x256xf32>
  %rows = pc.einsum "b s -> b s e" %weights : (tensor<2x256xf32>) -> tensor<2x256x4xf32>
  // expected-error @below {{pc-zigzag: 'pc.encode' op has scales for 2 blocks of tokens, which 4 chunks of the sequence would divide; ring attention reorders the sequence}}
  %codes, %scales = pc.encode float8 %rows : (tensor<2x256x4xf32>) -> (tensor<2x256x4xf8E4M3FN>, tensor<2x2x4xf32>)
  return
}

// -----

// CHECK: pc.program "whole_blocks" {{.*}} zigzag 2
pc.program "whole_blocks" batch 2 sequence 512 vocabulary 16 config "{}"
func.func @model() {
  %weights = pc.input loss_weights dims ["batch", "sequence"] : tensor<2x512xf32>
  %rows = pc.einsum "b s -> b s e" %weights : (tensor<2x512xf32>) -> tensor<2x512x4xf32>
  %codes, %scales = pc.encode float8 %rows : (tensor<2x512x4xf32>) -> (tensor<2x512x4xf8E4M3FN>, tensor<2x4x4xf32>)
  return
}
