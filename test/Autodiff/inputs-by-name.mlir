// A model without tokens: its inputs have names, and the first of their dims is the batch.
// RUN: pc-opt %s --split-input-file --verify-diagnostics --pc-differentiate -o /dev/null
// RUN: sed '/^.. -----$/,$d' %s | pc-opt --pc-differentiate=microbatches=2 | FileCheck %s
// RUN: sed '/^.. -----$/,$d' %s | pc-opt --pc-differentiate --pc-check-gradients -o /dev/null | FileCheck %s --check-prefix=NUMBERS
// RUN: sed '/^.. -----$/,$d' %s | not pc-opt --pc-pad-vocabulary=multiple=4 -o /dev/null 2>&1 | FileCheck %s --check-prefix=PADDED

// CHECK: pc.input data "image" dims ["microbatch", "batch", "height", "vocab"] : tensor<2x2x3x5xf32>
// CHECK: pc.input data "label" below 10 dims ["microbatch", "batch"] : tensor<2x2xi32>
// NUMBERS: gradient w: {{.*}} elements
// Files have no padding.
// PADDED: error: pc-pad-vocabulary: 'pc.input' op would include the padding

pc.program "toy" batch 4 sequence 1 vocabulary 10 config "{}"
func.func @model() {
  %image = pc.input data "image" dims ["batch", "height", "vocab"] : tensor<4x3x5xf32>
  %label = pc.input data "label" below 10 dims ["batch"] : tensor<4xi32>
  %w = pc.parameter "w" dims ["height", "vocab", "classes"] init <normal, 2.0e-02> source <"w", shape = [3, 5, 10], start = [0, 0, 0], size = [3, 5, 10]> : tensor<3x5x10xf32>
  %logits = pc.einsum "b h w, h w c -> b c" %image, %w : (tensor<4x3x5xf32>, tensor<3x5x10xf32>) -> tensor<4x10xf32>
  %nll = pc.cross_entropy %logits, %label : (tensor<4x10xf32>, tensor<4xi32>) -> tensor<4xf32>
  %sum = pc.einsum "b ->" %nll : (tensor<4xf32>) -> tensor<f32>
  %loss = pc.scale %sum by 2.5e-01 : (tensor<f32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}

// -----

pc.program "toy" batch 4 sequence 1 vocabulary 10 config "{}"
func.func @model() {
  // expected-error @below {{a program with a named input ('x') has no input of tokens; also give that input a name: pc.input data}}
  %t = pc.input tokens dims ["batch", "sequence"] : tensor<4x1xi32>
  %x = pc.input data "x" dims ["batch"] : tensor<4xf32>
  return
}

// -----

pc.program "toy" batch 4 sequence 1 vocabulary 10 config "{}"
func.func @model() {
  // expected-error @below {{'x' has a batch of 3, but the program has a batch of 4}}
  %x = pc.input data "x" dims ["batch"] : tensor<3xf32>
  return
}

// -----

func.func @model() {
  %x = pc.input data "x" dims ["batch"] : tensor<4xf32>
  // expected-error @below {{a second input has the name 'x'}}
  %y = pc.input data "x" dims ["batch"] : tensor<4xf32>
  return
}

// -----

func.func @model() {
  %x = pc.input data "x" below 11 dims ["batch"] : tensor<4xi32>
  %w = pc.parameter "w" dims ["classes", "embed"] init <fill, 1.0> source <"w", shape = [10, 2], start = [0, 0], size = [10, 2]> : tensor<10x2xf32>
  // expected-error @below {{'pc.embedding' op looks up 'x' among 10 entries, but the input says below 11}}
  %e = pc.embedding %w, %x : (tensor<10x2xf32>, tensor<4xi32>) -> tensor<4x2xf32>
  return
}

// -----

// expected-error @below {{a model needs an input of tokens, or named inputs}}
func.func @model() {
  return
}

// -----

// expected-note @below {{pc.program is here}}
pc.program "toy" batch 4 sequence 3 vocabulary 10 config "{}"
func.func @model() {
  // expected-error @below {{the input of tokens is 'tensor<4x2xi32>', but pc.program says 4 x 3}}
  %x = pc.input tokens dims ["batch", "sequence"] : tensor<4x2xi32>
  return
}

// -----

pc.program "toy" batch 4 sequence 3 vocabulary 11 config "{}"
func.func @model() {
  %x = pc.input tokens dims ["batch", "sequence"] : tensor<4x3xi32>
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [10, 2], start = [0, 0], size = [10, 2]> : tensor<10x2xf32>
  // expected-error @below {{'pc.embedding' op looks up 'tokens' among 10 entries, but the pc.program says vocabulary 11}}
  %e = pc.embedding %w, %x : (tensor<10x2xf32>, tensor<4x3xi32>) -> tensor<4x3x2xf32>
  return
}

// -----

// Targets that are classes state how many classes there are.
pc.program "toy" batch 4 sequence 3 vocabulary 10 masked config "{}"
func.func @model() {
  %x = pc.input tokens dims ["batch", "sequence"] : tensor<4x3xi32>
  %t = pc.input targets dims ["batch", "sequence"] : tensor<4x3xi32>
  %w = pc.parameter "w" dims ["vocab", "classes"] init <fill, 1.0> source <"w", shape = [10, 2], start = [0, 0], size = [10, 2]> : tensor<10x2xf32>
  %e = pc.embedding %w, %x : (tensor<10x2xf32>, tensor<4x3xi32>) -> tensor<4x3x2xf32>
  // expected-error @below {{'pc.cross_entropy' op looks up 'targets' among 2 entries, but the pc.program says vocabulary 10; write 'below 2' on the input if its numbers are}}
  %nll = pc.cross_entropy %e, %t : (tensor<4x3x2xf32>, tensor<4x3xi32>) -> tensor<4x3xf32>
  return
}

// -----

pc.program "toy" batch 4 sequence 3 vocabulary 10 config "{}"
func.func @model() {
  // expected-error @below {{the targets are the next tokens, which 'below' does not bound; write 'masked' in pc.program if a run reads the targets from a separate file}}
  %t = pc.input targets below 2 dims ["batch", "sequence"] : tensor<4x3xi32>
  return
}
