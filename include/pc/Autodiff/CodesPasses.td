//===- CodesPasses.td - Passes that store values as codes of 4 or 8 bits --------------------===//
#ifndef PC_AUTODIFF_CODESPASSES_TD
#define PC_AUTODIFF_CODESPASSES_TD

include "mlir/Pass/PassBase.td"

def StoreCodes : Pass<"pc-store-codes", "mlir::ModuleOp"> {
  let summary = "Stores the matrices of a step that generates text in 8 or 4 bits";
  let description = [{
    Step program -> step program. The pass comes before placement, so every plan has the same codes and scales.

    A parameter that only products with activations read becomes codes and f32 scales. A code c is an integer from -127
    to 127, or from -7 to 7. The element is c times its scale, as f32. With `int8`, the elements that a product sums for
    one element of its result have one scale. With `int4`, each group of 32 of these elements (`int4:64`: of 64) has one
    scale. Groups are along the innermost dim that products contract, whose size must be a multiple of the size of a
    group. Plans split between groups, never within them.

    An einsum before each product multiplies codes and scales. It becomes a part of the product's call, so the matrix is never stored as f32.
    A run computes codes and scales when it reads the parameter (runtime/README.md).

    Biases, weights of norms, tables with a dim "vocab" (also as the head), routers, and recurrences stay as they are.

    ```mlir
    // pc-opt --pc-generate-steps="slots=2 size=4" --pc-store-codes
    // input: decoder.mlir
    %y = pc.einsum "b s k g d, k g d e -> b s e" %o, %out : ...
    // becomes
    %out = pc.parameter "out" dims ["kv_heads", "group", "head_dim", "embed"] ... : tensor<2x1x2x4xi8>
    %scales = pc.state "scale" of "out" dims ["embed"] : tensor<4xf32>
    ...
    %m = pc.einsum "d0 d1 d2 d3, d3 -> d0 d1 d2 d3" %out, %scales : (tensor<2x1x2x4xi8>, tensor<4xf32>) -> tensor<2x1x2x4xf32>
    %y = pc.einsum "b s k g d, k g d e -> b s e" %o, %m : ...
    ```
  }];
  let options = [
    Option<"weights", "weights", "std::string", "\"int8\"", "Codes of matrices: int8, int4 (groups of 32) or int4:64">,
  ];
}

def QuantizeStates : Pass<"pc-quantize-states", "mlir::ModuleOp"> {
  let summary = "Keep the states of AdamW in 8 bits";
  let description = [{
    Step program -> step program. exp_avg and exp_avg_sq of a parameter become codes of 8 bits, with one f32 scale for each block of 256
    elements (`pc.encode`). The update decodes the states before `pc.adamw` and encodes them after it. exp_avg has the signed dynamic code, and
    exp_avg_sq the unsigned one. (Codes with equal steps would round small elements of exp_avg_sq to 0, and the update divides by their root.)

    A block is a square of 16 x 16 in the last dim and the longest other one that it divides; if there is none, it is 256 elements of the last
    dim. Its position does not depend on the plan, and plans split between blocks, so every plan has the same codes and scales.

    States of tables that an embedding reads, of biases, norms and other vectors, of parameters with fewer than 4096 elements, and of those that
    blocks do not divide stay f32.

    ```mlir
    // pc-opt --pc-differentiate --pc-quantize-states
    func.func @model() {
      %x = pc.input data "x" dims ["batch", "embed"] : tensor<4x64xf32>
      %w = pc.parameter "w" dims ["embed", "out"] init <fill, 1.0>
        source <"w", shape = [64, 96], start = [0, 0], size = [64, 96]> : tensor<64x96xf32>
      %y = pc.einsum "b e, e o -> b o" %x, %w : (tensor<4x64xf32>, tensor<64x96xf32>) -> tensor<4x96xf32>
      %loss = pc.einsum "b o ->" %y : (tensor<4x96xf32>) -> tensor<f32>
      pc.output loss "loss" %loss : tensor<f32>
      return
    }
    // becomes
    %c = pc.state "exp_avg" of "w" dims ["embed", "out"] : tensor<64x96xi8>
    %s = pc.state "exp_avg_scale" of "w" dims ["embed", "out"] : tensor<4x6xf32>
    ...
    %m = pc.decode dynamic %c, %s : (tensor<64x96xi8>, tensor<4x6xf32>) -> tensor<64x96xf32>
    ...
    %w2, %m2, %v2 = pc.adamw ...
    ...
    %c2, %s2 = pc.encode dynamic %m2 : (tensor<64x96xf32>) -> (tensor<64x96xi8>, tensor<4x6xf32>)
    ...
    pc.update "exp_avg" of "w" %c2 : tensor<64x96xi8>
    ```
  }];
}

def QuantizeWeights : Pass<"pc-quantize-weights", "mlir::ModuleOp"> {
  let summary = "Let the passes read matrices as codes of 8 bits";
  let description = [{
    Step program -> step program. The step encodes each large matrix once (`pc.encode linear`), and decodes it before its first reader in the
    forward pass and before its first reader in the backward pass. So a plan that gathers a matrix (ZeRO) sends codes and scales: 1.016 bytes per
    element. The optimizer reads and writes the f32 parameter, and the gradient of the decoded matrix is its gradient. This is qwZ of ZeRO++.

    Blocks are those of `pc-quantize-states`. Their position does not depend on the plan, and plans split between blocks, so every plan rounds in
    the same way. Tables that an embedding reads, vectors, parameters with fewer than 4096 elements, and those that blocks do not divide stay
    as they are.

    ```mlir
    // pc-opt --pc-differentiate --pc-quantize-weights
    func.func @model() {
      %x = pc.input data "x" dims ["batch", "embed"] : tensor<4x64xf32>
      %w = pc.parameter "w" dims ["embed", "out"] init <fill, 1.0>
        source <"w", shape = [64, 96], start = [0, 0], size = [64, 96]> : tensor<64x96xf32>
      %y = pc.einsum "b e, e o -> b o" %x, %w : (tensor<4x64xf32>, tensor<64x96xf32>) -> tensor<4x96xf32>
      %loss = pc.einsum "b o ->" %y : (tensor<4x96xf32>) -> tensor<f32>
      pc.output loss "loss" %loss : tensor<f32>
      return
    }
    // becomes
    %w = pc.parameter "w" ...
    %c, %s = pc.encode linear %w : (tensor<64x96xf32>) -> (tensor<64x96xi8>, tensor<4x6xf32>)
    ...
    %d = pc.decode linear %c, %s : (tensor<64x96xi8>, tensor<4x6xf32>) -> tensor<64x96xf32>
    %y = pc.einsum "b e, e o -> b o" %xm, %d : ...
    ...
    %w2, %m2, %v2 = pc.adamw %w, ...
    ```
  }];
}

#endif
