// The gradient of each token's loss depends on the losses of all tokens.
func.func @model() {
  %w = pc.parameter "w" dims ["vocab", "embed"] init <normal, 1.0> source <"w", shape = [16, 4], start = [0, 0], size = [16, 4]> : tensor<16x4xf32>
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<2x8xi32>
  %targets = pc.input targets dims ["batch", "sequence"] : tensor<2x8xi32>
  %x = pc.embedding %w, %tokens : (tensor<16x4xf32>, tensor<2x8xi32>) -> tensor<2x8x4xf32>
  %logits = pc.einsum "b s e, v e -> b s v" %x, %w : (tensor<2x8x4xf32>, tensor<16x4xf32>) -> tensor<2x8x16xf32>
  %nll = pc.cross_entropy %logits, %targets : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> tensor<2x8xf32>
  %sum = pc.einsum "b s ->" %nll : (tensor<2x8xf32>) -> tensor<f32>
  %loss = pc.exp %sum : (tensor<f32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}
