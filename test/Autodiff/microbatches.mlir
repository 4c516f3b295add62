// Several microbatches need a loss that is a sum over the sequences of the batch. Any other loss is refused, at the op
// that makes it different.
// RUN: pc-opt %s --pc-differentiate=microbatches=2 -split-input-file -verify-diagnostics | FileCheck %s
// RUN: pc-opt %s --pc-differentiate=microbatches=1 -split-input-file > /dev/null

// The loss has one number per token, and each depends only on rows of its own sequence. Half of the batch gives half of
// the loss.
// CHECK: tensor<2x2x8xi32>
func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32>
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %e = pc.embedding %w, %tokens : (tensor<16x8xf32>, tensor<4x8xi32>) -> tensor<4x8x8xf32>
  %mean = pc.einsum "b s e -> b e" %e : (tensor<4x8x8xf32>) -> tensor<4x8xf32>
  %f = pc.activation tanh %mean : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %sum = pc.einsum "b e -> e" %f : (tensor<4x8xf32>) -> tensor<8xf32>
  %g = pc.einsum "e ->" %sum : (tensor<8xf32>) -> tensor<f32>
  %s = pc.einsum "b s e, b s e ->" %e, %e : (tensor<4x8x8xf32>, tensor<4x8x8xf32>) -> tensor<f32>
  %both = pc.sub %s, %g : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %loss = pc.scale %both by 0.25 : (tensor<f32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32>
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %e = pc.embedding %w, %tokens : (tensor<16x8xf32>, tensor<4x8xi32>) -> tensor<4x8x8xf32>
  %sum = pc.einsum "b s e ->" %e : (tensor<4x8x8xf32>) -> tensor<f32>
  // expected-error @below {{'pc.einsum' op is not linear in a sum over the batch, so the sum over 2 microbatches would not be the loss of the batch; use --microbatches=1}}
  %loss = pc.einsum ", ->" %sum, %sum : (tensor<f32>, tensor<f32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32>
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %e = pc.embedding %w, %tokens : (tensor<16x8xf32>, tensor<4x8xi32>) -> tensor<4x8x8xf32>
  %sum = pc.einsum "b s e ->" %e : (tensor<4x8x8xf32>) -> tensor<f32>
  %decay = pc.einsum "v e, v e ->" %w, %w : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<f32>
  // expected-error @below {{'pc.add' op adds a value that does not depend on the batch to a sum over the batch, so each microbatch would add it again}}
  %loss = pc.add %sum, %decay : (tensor<f32>, tensor<f32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// The mean of all sequences is subtracted from each sequence.
func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32>
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %e = pc.embedding %w, %tokens : (tensor<16x8xf32>, tensor<4x8xi32>) -> tensor<4x8x8xf32>
  %sum = pc.einsum "b s e -> e" %e : (tensor<4x8x8xf32>) -> tensor<8xf32>
  %mean = pc.scale %sum by 0.03125 : (tensor<8xf32>) -> tensor<8xf32>
  // expected-error @below {{'pc.einsum' op uses a sum over the batch in each sequence of the batch}}
  %all = pc.einsum "e -> b s e" %mean : (tensor<8xf32>) -> tensor<4x8x8xf32>
  %d = pc.sub %e, %all : (tensor<4x8x8xf32>, tensor<4x8x8xf32>) -> tensor<4x8x8xf32>
  %loss = pc.einsum "b s e, b s e ->" %d, %d : (tensor<4x8x8xf32>, tensor<4x8x8xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

// The loss compares the sequences of a batch with each other.
func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32>
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %e = pc.embedding %w, %tokens : (tensor<16x8xf32>, tensor<4x8xi32>) -> tensor<4x8x8xf32>
  // expected-error @below {{'pc.einsum' op combines different sequences of the batch}}
  %alike = pc.einsum "b s e, c s e -> b c" %e, %e : (tensor<4x8x8xf32>, tensor<4x8x8xf32>) -> tensor<4x4xf32>
  %loss = pc.einsum "b c ->" %alike : (tensor<4x4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32>
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %e = pc.embedding %w, %tokens : (tensor<16x8xf32>, tensor<4x8xi32>) -> tensor<4x8x8xf32>
  // expected-error @below {{'pc.iota' op depends on the index of a sequence in the batch}}
  %i = pc.iota -> tensor<4xi32>
  %c = pc.cast %i : (tensor<4xi32>) -> tensor<4xf32>
  %loss = pc.einsum "b s e, b ->" %e, %c : (tensor<4x8x8xf32>, tensor<4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32>
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  // expected-error @below {{'pc.parameter' op has the batch as dim 0, so the model cannot be computed by microbatches; use --microbatches=1}}
  %rows = pc.parameter "rows" dims ["rows"] init <fill, 1.0> source <"rows", shape = [4], start = [0], size = [4]> : tensor<4xf32>
  %e = pc.embedding %w, %tokens : (tensor<16x8xf32>, tensor<4x8xi32>) -> tensor<4x8x8xf32>
  %loss = pc.einsum "b s e, b ->" %e, %rows : (tensor<4x8x8xf32>, tensor<4xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32>
  %w = pc.parameter "w" dims ["embed"] init <fill, 1.0> source <"w", shape = [8], start = [0], size = [8]> : tensor<8xf32>
  %loss = pc.einsum "e, e ->" %w, %w : (tensor<8xf32>, tensor<8xf32>) -> tensor<f32>
  // expected-error @below {{'pc.output' op outputs a loss that does not depend on the batch, so each of 2 microbatches would add it again; use --microbatches=1}}
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

func.func @model() {
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<4x8xi32>
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [16, 8], start = [0, 0], size = [16, 8]> : tensor<16x8xf32>
  %e = pc.embedding %w, %tokens : (tensor<16x8xf32>, tensor<4x8xi32>) -> tensor<4x8x8xf32>
  // expected-error @below {{'pc.reshape' op depends on the index of a sequence in the batch}}
  %rows = pc.reshape "b s e -> (b s) e" %e : (tensor<4x8x8xf32>) -> tensor<32x8xf32>
  %loss = pc.einsum "r e ->" %rows : (tensor<32x8xf32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
