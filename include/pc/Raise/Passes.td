//===- Passes.td - The pass of the Raise room ----------------------------------------===//
#ifndef PC_RAISE_PASSES_TD
#define PC_RAISE_PASSES_TD

include "mlir/Pass/PassBase.td"

def Raise : Pass<"pc-raise", "mlir::ModuleOp"> {
  let summary = "Replace norms, softmax, losses, attention and experts that are written in pieces by their ops";
  let description = [{
    Model program -> model program that computes the same. Kernels, tactics and gradients know `pc.rms_norm`, `pc.layer_norm`, `pc.softmax`,
    `pc.logsumexp`, `pc.cross_entropy`, `pc.activation` and `pc.attention`. A program written by hand, or by a front end without such ops, has
    sums, exponentials and products instead. The pass recognizes such pieces by what they compute, so products, broadcasts and
    transpositions may come in any order. Other ops do not change. The pass recognizes:

    * norms: x times 1 / sqrt(mean of x^2 + eps), with or without a scale and a shift. x may have its mean subtracted first;
    * softmax: e^x divided by its sum. If a maximum is subtracted first, it is removed, because the op subtracts its own;
    * `pc.logsumexp`: the logarithm of such a sum; if the entry of the target is subtracted from it, `pc.cross_entropy`;
    * silu, sigmoid and gelu (tanh);
    * attention: softmax of q k^T, which may be scaled and causal, times v. Keys with scores of -1e4 or less count as not seen.
      Keys and values have the same width, and q, k and v share at most two dims (batch and heads);
    * experts that all tokens compute: a sum over experts, with weights that are 0 unless `pc.top_k` has chosen the expert. Its products
      become `routed`. Ops of single experts, from a loop, become ops of all experts, and their parameters parts of packed ones. The names of
      these parameters' dims become "experts" and "expert_ffn".

    ```mlir
    // pc-opt --pc-raise
    // input: pieces.mlir
    %squares = pc.einsum "b e, b e -> b" %x, %x : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4xf32>
    %mean = pc.scale %squares by 1.250000e-01 : (tensor<4xf32>) -> tensor<4xf32>
    %eps = pc.constant 1.000000e-05 : tensor<f32>
    %wide = pc.einsum "-> b" %eps : (tensor<f32>) -> tensor<4xf32>
    %more = pc.add %mean, %wide : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %root = pc.sqrt %more : (tensor<4xf32>) -> tensor<4xf32>
    %rstd = pc.recip %root : (tensor<4xf32>) -> tensor<4xf32>
    %y = pc.einsum "b e, b, e -> b e" %x, %rstd, %gamma : (tensor<4x8xf32>, tensor<4xf32>, tensor<8xf32>) -> tensor<4x8xf32>
    // becomes
    %y, %rstd = pc.rms_norm %x, %gamma eps 1.000000e-05 : (tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
    ```
  }];
}

#endif
